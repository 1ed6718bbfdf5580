package revision

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller"
	"pgregory.net/rapid"
)

func TestHash(t *testing.T) {
	hash := func(image string) string {
		h, err := Hash(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": image}}}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if hash("a") == hash("b") {
		t.Errorf("hashes %q %q", hash("a"), hash("b"))
	}
	typed := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "a"}}}}
	if want := controller.ComputeHash(&typed, nil); hash("a") != want {
		t.Errorf("hash %q, the deployment controller's is %q", hash("a"), want)
	}
	if _, err := Hash(map[string]any{"f": func() {}}); err == nil {
		t.Error("no error for what JSON cannot say")
	}
}

func set(hash string, n int64, replicas int32) ReplicaSet {
	return ReplicaSet{Name: "web-" + hash, UID: types.UID("uid-" + hash), Hash: hash, Number: n, Desired: replicas, Present: replicas}
}

func TestNext(t *testing.T) {
	a, b, c := set("a", 1, 0), set("b", 2, 0), set("c", 3, 4)
	dead := b
	dead.Deleting = true
	for name, tc := range map[string]struct {
		d    Deployment
		sets []ReplicaSet
		want Plan
	}{
		"first":                          {Deployment{Name: "web", Hash: "a"}, nil, Plan{Create: "web-a", Number: 1}},
		"unchanged":                      {Deployment{Name: "web", Hash: "c"}, []ReplicaSet{a, b, c}, Plan{Current: &c, Number: 3}},
		"changed":                        {Deployment{Name: "web", Hash: "d"}, []ReplicaSet{a, b, c}, Plan{Create: "web-d", Number: 4}},
		"undone":                         {Deployment{Name: "web", Hash: "a"}, []ReplicaSet{a, b, c}, Plan{Current: &a, Number: 4}},
		"paused and changed":             {Deployment{Name: "web", Hash: "d", Paused: true}, []ReplicaSet{a, c}, Plan{Current: &c, Number: 3}},
		"paused from birth":              {Deployment{Name: "web", Hash: "d", Paused: true}, nil, Plan{}},
		"history limit":                  {Deployment{Name: "web", Hash: "c", HistoryLimit: new(int32(1))}, []ReplicaSet{b, a, c}, Plan{Current: &c, Number: 3, Delete: []ReplicaSet{a}}},
		"no history":                     {Deployment{Name: "web", Hash: "c", HistoryLimit: new(int32(0))}, []ReplicaSet{a, b, c}, Plan{Current: &c, Number: 3, Delete: []ReplicaSet{a, b}}},
		"what still runs is not deleted": {Deployment{Name: "web", Hash: "a", HistoryLimit: new(int32(0))}, []ReplicaSet{a, b, c}, Plan{Current: &a, Number: 4, Delete: []ReplicaSet{b}}},
		"what is going does not count":   {Deployment{Name: "web", Hash: "b"}, []ReplicaSet{a, dead}, Plan{Create: "web-b", Number: 2}},
	} {
		if diff := cmp.Diff(tc.want, Next(tc.d, tc.sets)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A walk of edits and undos, each plan carried out: the current revision has
// the largest number, numbers are unique, history stays within its limit.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sets []ReplicaSet
		limit := rapid.Int32Range(0, 4).Draw(t, "limit")
		for range rapid.IntRange(1, 30).Draw(t, "edits") {
			d := Deployment{Name: "web", Hash: fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "template")), HistoryLimit: &limit}
			p := Next(d, sets)
			if p.Create != "" {
				sets = append(sets, ReplicaSet{Name: p.Create, UID: types.UID(p.Create), Hash: d.Hash, Number: p.Number})
				p = Next(d, sets)
			}
			if p.Current == nil || p.Create != "" {
				t.Fatalf("no current revision after creation: %+v", p)
			}
			p.Current.Number = p.Number
			kept := sets[:0:0]
			for _, s := range sets {
				if !contains(p.Delete, s.UID) {
					kept = append(kept, s)
				}
			}
			sets = kept
			check(t, d, sets, int(limit))
		}
	})
}

func contains(sets []ReplicaSet, uid types.UID) bool {
	for _, s := range sets {
		if s.UID == uid {
			return true
		}
	}
	return false
}

func check(t *rapid.T, d Deployment, sets []ReplicaSet, limit int) {
	seen := map[int64]bool{}
	var largest ReplicaSet
	for _, s := range sets {
		if seen[s.Number] {
			t.Fatalf("two revisions %d", s.Number)
		}
		seen[s.Number] = true
		if s.Number > largest.Number {
			largest = s
		}
	}
	if largest.Hash != d.Hash {
		t.Fatalf("the newest revision is %s, the template is %s", largest.Hash, d.Hash)
	}
	if len(sets) > limit+1 {
		t.Fatalf("%d revisions with a limit of %d", len(sets), limit)
	}
}
