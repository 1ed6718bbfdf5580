package join

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/fence"
)

// warnOfOwner says when another control plane writes to the cluster: it is
// joined all the same, and read, but nothing is written to it.
func (j *join) warnOfOwner(ctx context.Context) error {
	cm, err := j.member.kube.CoreV1().ConfigMaps(v1alpha1.MemberNamespace).Get(ctx, v1alpha1.FenceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s of the member: %w", v1alpha1.FenceName, err)
	}
	ns, err := j.endpoint.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return explainEndpoint(j.endpoint.host, err)
	}
	mark, err := fence.Decode[fence.Mark](cm.Data)
	if err == nil && mark.ControlPlane == string(ns.UID) {
		return nil
	}
	j.say("another control plane (%s) writes to it: nothing is propagated to it until it is unjoined there, or taken over by: multicluster-apiserver restore accept --take-over %s", mark.ControlPlane, j.Name)
	return nil
}
