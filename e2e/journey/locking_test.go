package journey

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const counterKey = "example.com/counter"

// rounds of each run; JOURNEY_ROUNDS overrides them.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("JOURNEY_ROUNDS")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("JOURNEY_ROUNDS: %v", err)
	}
	return n
}

// Two writers through the endpoint and one in the member: no update is lost.
func TestOptimisticLocking(t *testing.T) {
	t.Parallel()
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	runPod(t, endpoint, ns, "counter")
	through := labtest.Client(t, world.System)
	inMember := memberOf(t, through, ns, "counter")
	share := rounds(t) / 3
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i, client := range []kubernetes.Interface{through, labtest.Client(t, world.System), inMember} {
		wg.Go(func() { errs[i] = incrementOften(ctx, client, ns, share) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]kubernetes.Interface{"endpoint": through, "member": inMember} {
		pod, err := client.CoreV1().Pods(ns).Get(ctx, "counter", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := pod.Annotations[counterKey]; got != strconv.Itoa(3*share) {
			t.Errorf("%s: the counter is %s, want %d", name, got, 3*share)
		}
	}
}

func incrementOften(ctx context.Context, client kubernetes.Interface, ns string, times int) error {
	for done := 0; done < times; {
		err := increment(ctx, client, ns)
		switch {
		case err == nil:
			done++
		case !apierrors.IsConflict(err):
			return fmt.Errorf("increment %d: %w", done, err)
		}
	}
	return nil
}

func increment(ctx context.Context, client kubernetes.Interface, ns string) error {
	pod, err := client.CoreV1().Pods(ns).Get(ctx, "counter", metav1.GetOptions{})
	if err != nil {
		return err
	}
	n := 0
	if text := pod.Annotations[counterKey]; text != "" {
		if n, err = strconv.Atoi(text); err != nil {
			return err
		}
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, counterKey, strconv.Itoa(n+1))
	_, err = client.CoreV1().Pods(ns).Update(ctx, pod, metav1.UpdateOptions{})
	return err
}

// memberOf is a client of the member that holds the Pod.
func memberOf(t *testing.T, through kubernetes.Interface, ns, name string) kubernetes.Interface {
	t.Helper()
	pod, err := through.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Labels["isthmus.dev/cluster"] == world.m2.Name() {
		return labtest.Client(t, world.m2)
	}
	return labtest.Client(t, world.m1)
}

// A write that names a resourceVersion of the past is a conflict, whatever its form.
func TestStaleVersionConflicts(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	runPod(t, world.System.Kubeconfig(), ns, "stale")
	client := labtest.Client(t, world.System)
	pods := client.CoreV1().Pods(ns)
	old, err := pods.Get(t.Context(), "stale", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Patch(t.Context(), "stale", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"1"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(kind types.PatchType, body string) func() error {
		return func() error {
			_, err := pods.Patch(t.Context(), "stale", kind, []byte(body), metav1.PatchOptions{})
			return err
		}
	}
	withRV := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{"a":"2"}}}`, old.ResourceVersion)
	jsonPatch := func(first string) string {
		return `[` + first + `,{"op":"add","path":"/metadata/annotations/a","value":"2"}]`
	}
	for name, write := range map[string]func() error{
		"update": func() error {
			stale := old.DeepCopy()
			metav1.SetMetaDataAnnotation(&stale.ObjectMeta, "a", "2")
			_, err := pods.Update(t.Context(), stale, metav1.UpdateOptions{})
			return err
		},
		"status update": func() error {
			stale := old.DeepCopy()
			stale.Status.Message = "2"
			_, err := pods.UpdateStatus(t.Context(), stale, metav1.UpdateOptions{})
			return err
		},
		"merge patch":     patch(types.MergePatchType, withRV),
		"strategic patch": patch(types.StrategicMergePatchType, withRV),
		"JSON patch that replaces": patch(types.JSONPatchType,
			jsonPatch(fmt.Sprintf(`{"op":"replace","path":"/metadata/resourceVersion","value":%q}`, old.ResourceVersion))),
		"delete": func() error {
			return pods.Delete(t.Context(), "stale", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old.ResourceVersion}})
		},
		"delete by another UID": func() error {
			return pods.Delete(t.Context(), "stale", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}})
		},
	} {
		if err := write(); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v, want a conflict", name, err)
		}
	}
	now, err := pods.Get(t.Context(), "stale", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now.Annotations["a"] != "1" || now.DeletionTimestamp != nil {
		t.Errorf("a stale write was done: %v, deleted %v", now.Annotations, now.DeletionTimestamp)
	}
	fresh := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion}}
	if err := pods.Delete(t.Context(), "stale", fresh); err != nil {
		t.Errorf("delete with the present version and UID: %v", err)
	}
}

// A write whose cluster label names another cluster than the owner is refused.
func TestForeignClusterLabel(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	runPod(t, world.System.Kubeconfig(), ns, "labelled")
	pods := labtest.Client(t, world.System).CoreV1().Pods(ns)
	pod, err := pods.Get(t.Context(), "labelled", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"m1": "m2", "m2": "m1"}[pod.Labels["isthmus.dev/cluster"]]
	if other == "" {
		t.Fatalf("labels %v", pod.Labels)
	}
	moved := pod.DeepCopy()
	moved.Labels["isthmus.dev/cluster"] = other
	_, err = pods.Update(t.Context(), moved, metav1.UpdateOptions{})
	wantInvalid(t, "update", err)
	body := fmt.Appendf(nil, `{"metadata":{"labels":{"isthmus.dev/cluster":%q}}}`, other)
	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		_, err = pods.Patch(t.Context(), "labelled", kind, body, metav1.PatchOptions{})
		wantInvalid(t, string(kind), err)
	}
	_, err = pods.Patch(t.Context(), "labelled", types.JSONPatchType,
		fmt.Appendf(nil, `[{"op":"replace","path":"/metadata/labels/isthmus.dev~1cluster","value":%q}]`, other), metav1.PatchOptions{})
	wantInvalid(t, "JSON patch", err)
	_, err = pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nowhere", Labels: map[string]string{"isthmus.dev/cluster": "m9"}},
		Spec:       pod.Spec,
	}, metav1.CreateOptions{})
	if err == nil {
		t.Error("a Pod for a cluster that does not exist was created")
	}
}

func wantInvalid(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("%s: %v, want Invalid (422)", what, err)
	}
}
