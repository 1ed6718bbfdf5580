package cachetest

import (
	"slices"
	"testing"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/compact"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// RealisticObject is a RealisticPod of cluster m1 as a collection holds it; names
// are those of its selectable fields.
func RealisticObject(t testing.TB, names []string, i int, rv uint64) *cache.Object {
	t.Helper()
	pod := RealisticPod(i)
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	set := []wire.Pair{{Key: cache.ClusterLabel, Value: "m1"}}
	for k, v := range pod.Labels {
		set = append(set, wire.Pair{Key: k, Value: v})
	}
	slices.SortFunc(set, func(a, b wire.Pair) int { return cache.Key{Name: a.Key}.Compare(cache.Key{Name: b.Key}) })
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = map[string]string{"spec.nodeName": pod.Spec.NodeName, "status.phase": "Running", "spec.restartPolicy": "Always"}[name]
	}
	owner := pod.OwnerReferences[0]
	return &cache.Object{
		Key: cache.Key{Namespace: pod.Namespace, Name: pod.Name}, SourceName: pod.Name, Cluster: "m1", UID: pod.UID,
		RV: rv, SourceRV: rv, Body: cache.Bytes(raw),
		Labels: compact.MakeLabels(set), Fields: compact.MakeFields(names, values),
		Origin: &cache.Origin{Node: pod.Spec.NodeName, Owners: []cache.OwnerRef{{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID, Controller: true}}},
	}
}
