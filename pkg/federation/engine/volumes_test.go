package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// A workload with claims stays where it is, whatever the policy says today; others
// and those that may leave their volumes move.
func TestVolumesKeepAWorkload(t *testing.T) {
	const claims = `volumeClaimTemplates: [{metadata: {name: d}}], `
	const mounts = `volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], `
	base := `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: d, uid: tu}, spec: {replicas: 3, template: {spec: {containers: []}}}}`
	e := &Engine{members: map[string]*member{"m1": {name: "m1"}, "m2": {name: "m2"}}}
	in := placement.Input{
		Divisible: true, Replicas: 3, Previous: []placement.Target{{Cluster: "m1", Replicas: 3}},
		Placement: policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{ReplicaSchedulingType: policyv1alpha1.ReplicasDivided}},
	}
	moved := placement.Decision{Targets: []placement.Target{{Cluster: "m2", Replicas: 3}}, Reason: placement.ReasonSuccess}
	for name, c := range map[string]struct {
		doc  string
		want string
		left string // a cluster that has left
	}{
		"no volumes":       {base, "m2", ""},
		"claim templates":  {strings.Replace(base, "replicas: 3, ", claims+"replicas: 3, ", 1), "m1", ""},
		"mounted claim":    {strings.Replace(base, "containers: []", mounts+"containers: []", 1), "m1", ""},
		"may move":         {strings.NewReplacer("uid: tu", `uid: tu, annotations: {isthmus.dev/move-volumes: "true"}`, "replicas: 3, ", claims+"replicas: 3, ").Replace(base), "m2", ""},
		"its cluster left": {strings.Replace(base, "replicas: 3, ", claims+"replicas: 3, ", 1), "m2", "m1"},
	} {
		tpl := templateOf(t, c.doc)
		s, err := tpl.shape()
		if err != nil {
			t.Fatal(err)
		}
		engine := e
		if c.left != "" {
			engine = &Engine{members: map[string]*member{"m2": {name: "m2"}}}
		}
		got := engine.anchored(tpl, s, in, moved)
		if diff := cmp.Diff([]placement.Target{{Cluster: c.want, Replicas: 3}}, got.Targets); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
