package quota

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func count(l corev1.ResourceList) int64 {
	q := l["pods"]
	return q.Value()
}

func text(s Shares) map[string]map[string]string {
	out := map[string]map[string]string{}
	for cluster, l := range s {
		out[cluster] = map[string]string{}
		for name, q := range l {
			out[cluster][string(name)] = q.String()
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		hard     corev1.ResourceList
		clusters []Cluster
		former   Shares
		want     map[string]string // of the one resource
	}{
		"nothing runs: equally": {
			list("pods", "10"), []Cluster{{Name: "a"}, {Name: "b"}}, nil, map[string]string{"a": "5", "b": "5"},
		},
		"as the replicas are": {
			list("pods", "10"),
			[]Cluster{{Name: "a", Wanted: list("pods", "7")}, {Name: "b", Wanted: list("pods", "3")}},
			nil,
			map[string]string{"a": "7", "b": "3"},
		},
		"more is wanted than there is": {
			list("pods", "10"),
			[]Cluster{{Name: "a", Wanted: list("pods", "14")}, {Name: "b", Wanted: list("pods", "6")}},
			nil,
			map[string]string{"a": "6", "b": "4"}, // each counts with no more than all there is
		},
		"what is used goes first": {
			list("pods", "10"),
			[]Cluster{{Name: "a", Wanted: list("pods", "10")}, {Name: "b", Used: list("pods", "4")}},
			nil,
			map[string]string{"a": "6", "b": "4"},
		},
		"more is used than is allowed": {
			list("pods", "4"),
			[]Cluster{{Name: "a", Used: list("pods", "6")}, {Name: "b", Used: list("pods", "2")}},
			nil,
			map[string]string{"a": "3", "b": "1"},
		},
		"enough for all: nothing moves": {
			list("pods", "10"),
			[]Cluster{{Name: "a", Used: list("pods", "1")}, {Name: "b", Used: list("pods", "1")}},
			Shares{"a": list("pods", "2"), "b": list("pods", "8")},
			map[string]string{"a": "2", "b": "8"},
		},
		"one is full, the other has room": {
			list("pods", "16"),
			[]Cluster{{Name: "a", Used: list("pods", "8")}, {Name: "b"}},
			Shares{"a": list("pods", "8"), "b": list("pods", "8")},
			map[string]string{"a": "15", "b": "1"},
		},
		"all are full": {
			list("pods", "10"),
			[]Cluster{{Name: "a", Used: list("pods", "7")}, {Name: "b", Used: list("pods", "3")}},
			Shares{"a": list("pods", "7"), "b": list("pods", "3")},
			map[string]string{"a": "7", "b": "3"},
		},
		"out of reach: keeps its share": {
			list("pods", "10"),
			[]Cluster{{Name: "a", Wanted: list("pods", "10")}, {Name: "b", Frozen: true}},
			Shares{"a": list("pods", "5"), "b": list("pods", "5")},
			map[string]string{"a": "5", "b": "5"},
		},
		"out of reach, and less is allowed": {
			list("pods", "3"),
			[]Cluster{{Name: "a", Wanted: list("pods", "10")}, {Name: "b", Frozen: true}},
			Shares{"a": list("pods", "5"), "b": list("pods", "5")},
			map[string]string{"a": "0", "b": "3"},
		},
		"given, and the rest divided": {
			list("pods", "10"),
			[]Cluster{{Name: "a", Fixed: list("pods", "2"), Used: list("pods", "4")}, {Name: "b"}, {Name: "c", Fixed: list("cpu", "1")}},
			nil,
			map[string]string{"a": "2", "b": "4", "c": "4"},
		},
		"parts of a core": {
			list("requests.cpu", "1"),
			[]Cluster{{Name: "a", Wanted: list("requests.cpu", "500m")}, {Name: "b"}},
			nil,
			map[string]string{"a": "917m", "b": "83m"},
		},
		"bytes": {
			list("requests.memory", "1Gi"), []Cluster{{Name: "a"}, {Name: "b"}}, nil, map[string]string{"a": "512Mi", "b": "512Mi"},
		},
		"large": {
			list("requests.storage", "4Ei"),
			[]Cluster{{Name: "a", Wanted: list("requests.storage", "3Ei")}, {Name: "b", Wanted: list("requests.storage", "1Ei")}},
			nil,
			map[string]string{"a": "3Ei", "b": "1Ei"},
		},
		"templates are counted once": {
			list("configmaps", "7"), []Cluster{{Name: "a"}, {Name: "b"}}, nil, map[string]string{"a": "7", "b": "7"},
		},
		"nothing is allowed": {
			list("pods", "0"), []Cluster{{Name: "a", Used: list("pods", "2")}, {Name: "b"}}, nil, map[string]string{"a": "0", "b": "0"},
		},
	} {
		got := map[string]string{}
		for cluster, l := range text(Plan(c.hard, c.clusters, c.former, "u")) {
			for _, q := range l {
				got[cluster] = q
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The shares are no less than nothing and add up to the limit, and who is there
// keeps what it uses where there is enough for that.
func TestSumKeepsTheIntent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hard := rapid.Int64Range(0, 100).Draw(t, "hard")
		var clusters []Cluster
		former := Shares{}
		var used, frozen int64
		for i := range rapid.IntRange(1, 5).Draw(t, "clusters") {
			pods := func(what string) corev1.ResourceList {
				return corev1.ResourceList{"pods": *resource.NewQuantity(rapid.Int64Range(0, 60).Draw(t, what), resource.DecimalSI)}
			}
			c := Cluster{Name: fmt.Sprint("m", i), Used: pods("used"), Wanted: pods("wanted"), Frozen: rapid.IntRange(0, 4).Draw(t, "frozen") == 0}
			if rapid.Bool().Draw(t, "known") {
				former[c.Name] = pods("former")
			}
			if c.Frozen {
				frozen += count(former[c.Name])
			} else {
				used += count(c.Used)
			}
			clusters = append(clusters, c)
		}
		var sum int64
		reachable := false
		for _, c := range clusters {
			reachable = reachable || !c.Frozen
		}
		for cluster, l := range Plan(corev1.ResourceList{"pods": *resource.NewQuantity(hard, resource.DecimalSI)}, clusters, former, "u") {
			n := count(l)
			sum += n
			for _, c := range clusters {
				if c.Name == cluster && !c.Frozen && used+frozen <= hard && n < count(c.Used) {
					t.Fatalf("%s uses %d and gets %d", cluster, count(c.Used), n)
				}
			}
			if n < 0 {
				t.Fatalf("%s: %d", cluster, n)
			}
		}
		if sum > hard || reachable && sum != hard {
			t.Fatalf("%d of %d", sum, hard)
		}
	})
}
