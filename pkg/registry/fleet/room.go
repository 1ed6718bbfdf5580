package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/proxy/gateway"
)

// roomLimit bounds one request for room.
const roomLimit = 3 * time.Second

// askForRoom writes on the binding of a quota what a cluster lacks of it: the
// engine, wherever it leads, moves the shares. It says no where there is no such
// binding: the quota is the member's own.
func askForRoom(controlPlane *rest.Config) (func(context.Context, cache.ClusterName, gateway.Want) bool, error) {
	client, err := metadata.NewForConfig(controlPlane)
	if err != nil {
		return nil, fmt.Errorf("client that asks for room: %w", err)
	}
	bindings := client.Resource(workv1alpha2.SchemeGroupVersion.WithResource("resourcebindings"))
	return func(ctx context.Context, cluster cache.ClusterName, want gateway.Want) bool {
		ctx, cancel := context.WithTimeout(ctx, roomLimit)
		defer cancel()
		name := want.Quota + "-resourcequota"
		if want.Resources == "" {
			_, err := bindings.Namespace(want.Namespace).Get(ctx, name, metav1.GetOptions{})
			return err == nil
		}
		patch, err := roomPatch(string(cluster), want.Resources, time.Now())
		if err == nil {
			_, err = bindings.Namespace(want.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			klog.FromContext(ctx).V(2).Info("No room can be asked for", "quota", want.Quota, "namespace", want.Namespace, "err", err)
		}
		return err == nil
	}, nil
}

func roomPatch(cluster, resources string, now time.Time) ([]byte, error) {
	list := corev1.ResourceList{}
	for pair := range strings.SplitSeq(resources, ",") {
		name, value, _ := strings.Cut(pair, "=")
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("what is asked for, %q: %w", pair, err)
		}
		list[corev1.ResourceName(name)] = q
	}
	asked, err := json.Marshal(map[string]any{"at": now.UTC().Format(time.RFC3339Nano), "resources": list})
	if err != nil {
		return nil, fmt.Errorf("what is asked for: %w", err)
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{marks.QuotaWanted + cluster: string(asked)}}})
}
