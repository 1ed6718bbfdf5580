package gateway

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// withJSON is the endpoint's client that speaks JSON instead of protobuf.
func (l *lab) withJSON() *kubernetes.Clientset {
	config := rest.CopyConfig(l.config)
	config.ContentType = "application/json"
	return kubernetes.NewForConfigOrDie(config)
}

func TestRealCreate(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	for name, client := range map[string]*kubernetes.Clientset{"protobuf": l.client, "json": l.withJSON()} {
		pods := client.CoreV1().Pods(ns)
		p := simplePod("chosen-" + name)
		p.Labels[cache.ClusterLabel] = "m2"
		made, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.Labels[cache.ClusterLabel] != "m2" || made.Name != p.Name {
			t.Errorf("%s: answered %s in %q", name, made.Name, made.Labels[cache.ClusterLabel])
		}
		seen, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil || seen.UID != made.UID {
			t.Fatalf("%s: not read back: %v", name, err)
		}
		stored, err := l.members["m2"].CoreV1().Pods(ns).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := stored.Labels[cache.ClusterLabel]; ok || stored.Labels["app"] != "web" {
			t.Errorf("%s: labels in the member: %v", name, stored.Labels)
		}
		if _, err := pods.Create(t.Context(), simplePod(p.Name), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s: the name is free elsewhere: %v", name, err)
		}
	}
	unknown := simplePod("nowhere")
	unknown.Labels[cache.ClusterLabel] = "m9"
	if _, err := l.client.CoreV1().Pods(ns).Create(t.Context(), unknown, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("unknown cluster: %v", err)
	}
	generated := simplePod("")
	generated.GenerateName = "gen-"
	for range 3 {
		made, err := l.client.CoreV1().Pods(ns).Create(t.Context(), generated, metav1.CreateOptions{})
		if err != nil || len(made.Name) != len("gen-")+5 {
			t.Errorf("%v %v", made, err)
		}
	}
	if _, err := l.client.CoreV1().Pods(ns).Create(t.Context(), simplePod("dry"), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if _, err := l.client.CoreV1().Pods(ns).Get(t.Context(), "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run left %v", err)
	}
	if _, err := l.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("node without a cluster: %v", err)
	}
}

func TestRealUpdateAndLocking(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	for _, name := range []string{"db-0", "db-0.m2"} {
		for form, client := range map[string]*kubernetes.Clientset{"protobuf": l.client, "json": l.withJSON()} {
			pods := client.CoreV1().Pods(ns)
			p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			stale := p.DeepCopy()
			p.Labels["form"] = form
			updated, err := pods.Update(t.Context(), p, metav1.UpdateOptions{})
			if err != nil {
				t.Fatalf("%s %s: %v", name, form, err)
			}
			if updated.Name != name || updated.Labels["form"] != form || updated.ResourceVersion == p.ResourceVersion {
				t.Errorf("%s %s: answered %s at %s, %v", name, form, updated.Name, updated.ResourceVersion, updated.Labels)
			}
			got, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || got.ResourceVersion != updated.ResourceVersion {
				t.Errorf("%s %s: reads %s after writing %s", name, form, got.ResourceVersion, updated.ResourceVersion)
			}
			stale.Labels["lost"] = "yes"
			if _, err := pods.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("%s %s: stale update: %v", name, form, err)
			}
			moved := updated.DeepCopy()
			moved.Labels[cache.ClusterLabel] = "m9"
			if _, err := pods.Update(t.Context(), moved, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
				t.Errorf("%s %s: moved: %v", name, form, err)
			}
		}
	}
	stored, err := l.members["m2"].CoreV1().Pods(ns).Get(t.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := stored.Labels[cache.ClusterLabel]; ok || len(stored.Annotations[cache.OriginalNameAnnotation]) > 0 {
		t.Errorf("marks in the member: %v %v", stored.Labels, stored.Annotations)
	}
}

func TestRealPatches(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	pods := l.client.CoreV1().Pods(ns)
	for _, name := range []string{"db-0", "db-0.m2"} {
		for kind, body := range map[types.PatchType]string{
			types.JSONPatchType:           `[{"op":"test","path":"/metadata/name","value":%q},{"op":"add","path":"/metadata/labels/p","value":"json"}]`,
			types.MergePatchType:          `{"metadata":{"name":%q,"labels":{"p":"merge"}}}`,
			types.StrategicMergePatchType: `{"metadata":{"name":%q,"labels":{"p":"strategic"}}}`,
		} {
			p, err := pods.Patch(t.Context(), name, kind, fmt.Appendf(nil, body, name), metav1.PatchOptions{})
			if err != nil || p.Name != name || p.Labels["p"] == "" {
				t.Errorf("%s %s: %v %v", name, kind, p, err)
			}
		}
		p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for kind, body := range map[types.PatchType]string{
			types.JSONPatchType:           `[{"op":"replace","path":"/metadata/resourceVersion","value":"1"},{"op":"add","path":"/metadata/labels/p","value":"x"}]`,
			types.MergePatchType:          `{"metadata":{"resourceVersion":"1"}}`,
			types.StrategicMergePatchType: `{"metadata":{"uid":"before"}}`,
		} {
			if _, err := pods.Patch(t.Context(), name, kind, []byte(body), metav1.PatchOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("%s %s: %v", name, kind, err)
			}
		}
		withRV := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"p":"rv"}}}`, p.ResourceVersion)
		if _, err = pods.Patch(t.Context(), name, types.MergePatchType, withRV, metav1.PatchOptions{}); err != nil {
			t.Errorf("%s with its version: %v", name, err)
		}
		applied, err := pods.Apply(t.Context(), applycorev1.Pod(name, ns).WithLabels(map[string]string{"applied": "yes"}), metav1.ApplyOptions{FieldManager: "tester"})
		if err != nil || applied.Name != name {
			t.Fatalf("%s: apply: %v", name, err)
		}
		managers := map[string]bool{}
		for _, f := range applied.ManagedFields {
			managers[f.Manager] = true
		}
		if !managers["tester"] {
			t.Errorf("%s: managers %v", name, managers)
		}
	}
	fresh := applycorev1.Pod("applied", ns).WithSpec(applycorev1.PodSpec().WithContainers(applycorev1.Container().WithName("c").WithImage("nginx")))
	made, err := pods.Apply(t.Context(), fresh, metav1.ApplyOptions{FieldManager: "tester"})
	if err != nil || made.Labels[cache.ClusterLabel] == "" {
		t.Errorf("apply of a new object: %v %v", made, err)
	}
	if _, err := pods.Patch(t.Context(), "absent", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("absent: %v", err)
	}
	if _, err := pods.Patch(t.Context(), "db-0", types.PatchType("text/plain"), []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("unknown type: %v", err)
	}
	if _, err := pods.Patch(t.Context(), "db-0", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/name","value":"x"}]`), metav1.PatchOptions{}); apierrors.ReasonForError(err) != metav1.StatusReasonInvalid && statusCode(err) != 422 {
		t.Errorf("failed test: %v", err)
	}
}

func statusCode(err error) int32 {
	if s, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // a client's error
		return s.Status().Code
	}
	return 0
}

func TestRealDelete(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	pods := l.client.CoreV1().Pods(ns)
	wrong := types.UID("another")
	if err := pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		t.Errorf("wrong UID: %v", err)
	}
	old := "1"
	if err := pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}); !apierrors.IsConflict(err) {
		t.Errorf("wrong version: %v", err)
	}
	if err := pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{DryRun: []string{"All"}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	first, err := pods.Get(t.Context(), "db-0", metav1.GetOptions{})
	if err != nil || first.DeletionTimestamp != nil {
		t.Fatalf("after a dry run: %v %v", first, err)
	}
	rv := first.ResourceVersion
	grace := int64(0)
	if err := pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &first.UID, ResourceVersion: &rv}}); err != nil {
		t.Fatal(err)
	}
	if p, err := pods.Get(t.Context(), "db-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("read after the deletion: %v %v", p, err)
	}
	// The same request again must not reach the other cluster's object.
	if err := pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{GracePeriodSeconds: &grace}); !apierrors.IsNotFound(err) {
		t.Errorf("second deletion: %v", err)
	}
	if _, err := l.members["m2"].CoreV1().Pods(ns).Get(t.Context(), "db-0", metav1.GetOptions{}); err != nil {
		t.Errorf("the twin: %v", err)
	}
	// The name is m1's for a while: the Pod comes back there.
	back, err := pods.Create(t.Context(), simplePod("db-0"), metav1.CreateOptions{})
	if err != nil || back.Labels[cache.ClusterLabel] != "m1" {
		t.Errorf("made again: %v %v", back.Labels, err)
	}
	if err := pods.Delete(t.Context(), "db-0.m2", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Errorf("the twin: %v", err)
	}
	if _, err := l.members["m2"].CoreV1().Pods(ns).Get(t.Context(), "db-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the twin lives: %v", err)
	}
}

func TestRealGracefulDelete(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	pods := l.client.CoreV1().Pods(ns)
	p := simplePod("slow")
	p.Finalizers = []string{"example.com/hold"}
	if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "slow", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := pods.Get(t.Context(), "slow", metav1.GetOptions{})
	if err != nil || got.DeletionTimestamp == nil {
		t.Fatalf("going away: %v %v", got, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": nil}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Patch(t.Context(), "slow", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "slow is gone", func() bool {
		_, err := pods.Get(t.Context(), "slow", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestRealDeleteCollection(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	for _, name := range []string{"a", "b", "c"} {
		l.twins(t, ns, name)
	}
	pods := l.client.CoreV1().Pods(ns)
	count := func(member string) int {
		list, err := l.members[member].CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=web," + cache.ClusterLabel + "=m2", FieldSelector: "metadata.name!=a.m2"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b and c of m2 are gone", func() bool { return count("m2") == 1 })
	if n := count("m1"); n != 3 {
		t.Errorf("m1 has %d", n)
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=nothing"}); err != nil {
		t.Fatal(err)
	}
	if n := count("m1") + count("m2"); n != 4 {
		t.Errorf("%d left", n)
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are gone", func() bool { return count("m1")+count("m2") == 0 })
}
