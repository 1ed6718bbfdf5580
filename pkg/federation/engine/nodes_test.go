package engine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

func TestNodeWanted(t *testing.T) {
	for name, c := range map[string]struct {
		spec *corev1.PodSpec
		want string
	}{
		"no pod template": {},
		"anywhere":        {spec: &corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}},
		"by name":         {spec: &corev1.PodSpec{NodeName: "a.m2"}, want: "a.m2"},
		"by host name":    {spec: &corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "a"}}, want: "a"},
	} {
		if got := nodeWanted(c.spec); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNodeNarrowsThePlacement(t *testing.T) {
	clusters := []placement.Cluster{{Name: "m1"}, {Name: "m2"}}
	for name, c := range map[string]struct {
		node *node
		want int
	}{
		"none asked for":       {want: 2},
		"in a member":          {node: &node{cluster: "m2"}, want: 1},
		"in one that has left": {node: &node{cluster: "gone"}, want: 2},
	} {
		if got := c.node.around(clusters); len(got) != c.want || c.want == 1 && got[0].Name != "m2" {
			t.Errorf("%s: %v", name, got)
		}
	}
	if len(clusters) != 2 || clusters[0].Name != "m1" {
		t.Errorf("the clusters themselves were changed: %v", clusters)
	}
}

func TestNodeIsRenamedForItsMember(t *testing.T) {
	object := func() map[string]any {
		return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"nodeName": "a.m2", "nodeSelector": map[string]any{corev1.LabelHostname: "a.m2", "other": "a.m2"},
		}}}}
	}
	n := &node{served: "a.m2", cluster: "m2", name: "a"}
	for cluster, want := range map[string]string{"m2": "a", "m1": "a.m2"} {
		o := object()
		if err := n.rename(o, cluster); err != nil {
			t.Fatal(err)
		}
		spec, _, _ := unstructured.NestedMap(o, "spec", "template", "spec")
		selector := spec["nodeSelector"].(map[string]any)
		if spec["nodeName"] != want || selector[corev1.LabelHostname] != want || selector["other"] != "a.m2" {
			t.Errorf("for %s: %v", cluster, spec)
		}
	}
	var none *node
	if err := none.rename(object(), "m1"); err != nil {
		t.Error(err)
	}
}
