package revision

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/history"
)

func podTemplate(t *testing.T, image string) (corev1.PodTemplateSpec, map[string]any) {
	t.Helper()
	typed := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "db", Image: image, ImagePullPolicy: "IfNotPresent"}},
			RestartPolicy:                 "Always",
			TerminationGracePeriodSeconds: new(int64(30)),
		},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if err != nil {
		t.Fatal(err)
	}
	return typed, object
}

// TestHistoryHashIsTheControllers: the names are those that a cluster's own
// controllers give.
func TestHistoryHashIsTheControllers(t *testing.T) {
	typed, object := podTemplate(t, "db:1")
	data, err := Data(object)
	if err != nil {
		t.Fatal(err)
	}
	free := func(string) bool { return false }
	for collisions, taken := range []map[string]bool{{}, {"first": true}} {
		probe := int32(collisions)
		count := &probe
		if collisions == 0 {
			count = nil
		}
		wantSet := history.HashControllerRevision(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}}, &probe)
		wantDaemon := controller.ComputeHash(&typed, count)
		for kind, want := range map[string]string{"StatefulSet": wantSet, "DaemonSet": wantDaemon} {
			first, err := HistoryHash(kind, data, free)
			if err != nil {
				t.Fatal(err)
			}
			got, err := HistoryHash(kind, data, func(h string) bool { return taken["first"] && h == first })
			if err != nil || got != want {
				t.Errorf("%s after %d collisions: %s, %v, want %s", kind, collisions, got, err, want)
			}
		}
	}
}

// TestDataPutsTheTemplateBack: applied to another template, the patch leaves
// nothing of it.
func TestDataPutsTheTemplateBack(t *testing.T) {
	old, object := podTemplate(t, "db:1")
	data, err := Data(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, changed := object["$patch"]; changed {
		t.Error("the template was written to")
	}
	set := appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{ServiceName: "db"}}
	set.Spec.Template, _ = podTemplate(t, "db:2")
	set.Spec.Template.Annotations = map[string]string{"new": "one"}
	set.Spec.Template.Spec.Containers = append(set.Spec.Template.Spec.Containers, corev1.Container{Name: "extra", Image: "x"})
	raw, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(raw, data, appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	var got appsv1.StatefulSet
	if err := json.Unmarshal(patched, &got); err != nil {
		t.Fatal(err)
	}
	if a, b := asJSON(t, got.Spec.Template), asJSON(t, old); a != b || got.Spec.ServiceName != "db" {
		t.Errorf("got %s\nwant %s", a, b)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
