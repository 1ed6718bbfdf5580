package aggregate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var deploymentGK = schema.GroupKind{Group: "apps", Kind: "Deployment"}

// status reads YAML with the number types of the API machinery.
func status(t testing.TB, doc string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(doc), &out); err != nil {
		t.Fatal(err)
	}
	return whole(out).(map[string]any)
}

func whole(v any) any {
	switch x := v.(type) {
	case float64:
		return int64(x)
	case map[string]any:
		for k := range x {
			x[k] = whole(x[k])
		}
	case []any:
		for i := range x {
			x[i] = whole(x[i])
		}
	}
	return v
}

const done = `{observedGeneration: 7, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [
  {type: Available, status: "True", reason: MinimumReplicasAvailable, message: ok, lastTransitionTime: "2026-01-01T00:00:00Z", lastUpdateTime: "2026-01-01T00:00:00Z"},
  {type: Progressing, status: "True", reason: NewReplicaSetAvailable, message: done, lastTransitionTime: "2026-01-01T00:00:00Z", lastUpdateTime: "2026-01-01T00:00:01Z"}]}`

const working = `{observedGeneration: 7, replicas: 2, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, unavailableReplicas: 1, conditions: [
  {type: Available, status: "False", reason: MinimumReplicasUnavailable, message: not enough, lastTransitionTime: "2026-01-02T00:00:00Z"},
  {type: Progressing, status: "True", reason: ReplicaSetUpdated, message: going, lastTransitionTime: "2026-01-02T00:00:00Z"}]}`

const stuck = `{observedGeneration: 7, replicas: 2, updatedReplicas: 1, conditions: [
  {type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: too long, lastTransitionTime: "2026-01-03T00:00:00Z"}]}`

func part(t testing.TB, cluster, doc string, change ...func(*Part)) Part {
	t.Helper()
	p := Part{Cluster: cluster, Exists: true, Applied: true, Generation: 7, Desired: 2, Status: status(t, doc)}
	for _, f := range change {
		f(&p)
	}
	return p
}

func verdict(out map[string]any, typ string) string {
	c := condition(out, typ)
	if c == nil {
		return ""
	}
	return text(c, "status") + " " + text(c, "reason")
}

func TestDeployment(t *testing.T) {
	lagging := func(p *Part) { p.Generation = 8 }
	unwritten := func(p *Part) { p.Applied = false }
	missing := func(p *Part) { p.Exists, p.Status = false, nil }
	lost := func(p *Part) { p.StaleSince = "2026-01-05T00:00:00Z" }
	for name, c := range map[string]struct {
		parts                          []Part
		replicas                       int32
		problem                        string
		observed, ready, total         int64
		available, progressing, staled string
	}{
		"all done":            {[]Part{part(t, "m1", done), part(t, "m2", done)}, 4, "", 5, 4, 4, "True MinimumReplicasAvailable", "True NewReplicaSetAvailable", ""},
		"one is working":      {[]Part{part(t, "m1", done), part(t, "m2", working)}, 4, "", 5, 3, 4, "False MinimumReplicasUnavailable", "True ReplicaSetUpdated", ""},
		"one is stuck":        {[]Part{part(t, "m1", done), part(t, "m2", stuck)}, 4, "", 5, 2, 4, "False NotReported", "False ProgressDeadlineExceeded", ""},
		"one has not looked":  {[]Part{part(t, "m1", done), part(t, "m2", done, lagging)}, 4, "", 4, 4, 4, "True MinimumReplicasAvailable", "True ReplicaSetUpdated", ""},
		"one is not written":  {[]Part{part(t, "m1", done), part(t, "m2", done, unwritten)}, 4, "", 4, 4, 4, "True MinimumReplicasAvailable", "True ReplicaSetUpdated", ""},
		"one is missing":      {[]Part{part(t, "m1", done), part(t, "m2", done, missing)}, 4, "", 4, 2, 2, "False NotReported", "True ReplicaSetUpdated", ""},
		"one is unreachable":  {[]Part{part(t, "m1", done), part(t, "m2", done, lost)}, 4, "", 5, 2, 4, "False ClusterUnreachable", "True NewReplicaSetAvailable", "True ClusterUnreachable"},
		"nowhere to run":      {nil, 3, "0/0 clusters are available", 5, 0, 0, "False NoClusterFit", "", ""},
		"scaled to zero":      {[]Part{part(t, "m1", `{observedGeneration: 7}`, func(p *Part) { p.Desired = 0 })}, 0, "", 5, 0, 0, "True MinimumReplicasAvailable", "", ""},
		"nothing decided yet": {nil, 3, "", 5, 0, 0, "False MinimumReplicasUnavailable", "", ""},
	} {
		in := Input{Kind: deploymentGK, Generation: 5, Replicas: c.replicas, Decided: true, Problem: c.problem, Parts: c.parts, Former: status(t, `{observedGeneration: 4}`)}
		out := Status(in)
		got := []any{number(out, "observedGeneration"), number(out, "readyReplicas"), number(out, "replicas"), verdict(out, "Available"), verdict(out, "Progressing"), verdict(out, "Stale")}
		want := []any{c.observed, c.ready, c.total, c.available, c.progressing, c.staled}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A decision that is not for the present generation observes nothing.
func TestUndecidedGeneration(t *testing.T) {
	out := Status(Input{Kind: deploymentGK, Generation: 5, Former: status(t, `{observedGeneration: 4}`), Parts: []Part{part(t, "m1", done)}})
	if number(out, "observedGeneration") != 4 {
		t.Errorf("observedGeneration %v", out["observedGeneration"])
	}
}

func TestConditionTimesAndMessages(t *testing.T) {
	in := Input{
		Kind: deploymentGK, Generation: 5, Replicas: 4, Decided: true, Parts: []Part{part(t, "m1", done), part(t, "m2", done)},
		Former: status(t, `{conditions: [{type: Available, status: "True", lastTransitionTime: "2025-06-01T00:00:00Z"}]}`),
	}
	c := condition(Status(in), "Available")
	if text(c, "lastTransitionTime") != "2025-06-01T00:00:00Z" {
		t.Errorf("the transition moved to %s although the status is the same", text(c, "lastTransitionTime"))
	}
	if text(c, "message") != "m1: ok; m2: ok" {
		t.Errorf("message %q", text(c, "message"))
	}
	in.Parts[1] = part(t, "m2", working)
	if c = condition(Status(in), "Available"); text(c, "lastTransitionTime") != "2026-01-02T00:00:00Z" || text(c, "message") != "m2: not enough" {
		t.Errorf("after the turn: %v", c)
	}
}

// The same input gives the same output, and feeding the output back changes
// nothing: otherwise the engine would write for ever.
func TestFixedPoint(t *testing.T) {
	docs := []string{done, working, stuck, `{}`}
	rapid.Check(t, func(rt *rapid.T) {
		in := Input{Kind: deploymentGK, Generation: 5, Replicas: rapid.Int32Range(0, 6).Draw(rt, "replicas"), Decided: rapid.Bool().Draw(rt, "decided")}
		for i := range rapid.IntRange(0, 3).Draw(rt, "parts") {
			p := part(t, string(rune('a'+i)), rapid.SampledFrom(docs).Draw(rt, "status"))
			p.Applied, p.Exists = rapid.Bool().Draw(rt, "applied"), true
			if rapid.Bool().Draw(rt, "stale") {
				p.StaleSince = "2026-01-05T00:00:00Z"
			}
			in.Parts = append(in.Parts, p)
		}
		in.Former = Status(in)
		if diff := cmp.Diff(in.Former, Status(in)); diff != "" {
			rt.Fatal(diff)
		}
		if number(in.Former, "observedGeneration") > in.Generation {
			rt.Fatal("observed more than there is")
		}
	})
}

func TestOtherKinds(t *testing.T) {
	for name, c := range map[string]struct {
		kind   schema.GroupKind
		former string
		parts  []string
		want   string
	}{
		"StatefulSet": {
			schema.GroupKind{Group: "apps", Kind: "StatefulSet"},
			`{}`,
			[]string{`{observedGeneration: 7, replicas: 1, readyReplicas: 1, currentRevision: a, updateRevision: a}`, `{observedGeneration: 7, replicas: 2, readyReplicas: 1, currentRevision: b, updateRevision: c}`},
			`{observedGeneration: 5, replicas: 3, readyReplicas: 2, currentRevision: b, updateRevision: c}`,
		},
		"DaemonSet": {
			schema.GroupKind{Group: "apps", Kind: "DaemonSet"},
			`{}`,
			[]string{`{observedGeneration: 7, desiredNumberScheduled: 3, numberReady: 2}`, `{observedGeneration: 7, desiredNumberScheduled: 2, numberReady: 2}`},
			`{observedGeneration: 5, currentNumberScheduled: 0, desiredNumberScheduled: 5, numberMisscheduled: 0, numberReady: 4}`,
		},
		"Service": {
			schema.GroupKind{Kind: "Service"},
			`{}`,
			[]string{`{loadBalancer: {ingress: [{hostname: lb.example.net}]}}`, `{loadBalancer: {ingress: [{ip: 10.0.0.1}, {hostname: lb.example.net}]}}`},
			`{loadBalancer: {ingress: [{hostname: lb.example.net}, {ip: 10.0.0.1}]}}`,
		},
		"claims bound": {
			schema.GroupKind{Kind: "PersistentVolumeClaim"},
			`{}`,
			[]string{`{phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 2Gi}}`, `{phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}`},
			`{phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}`,
		},
		"claim pending": {schema.GroupKind{Kind: "PersistentVolumeClaim"}, `{}`, []string{`{phase: Bound}`, `{}`}, `{phase: Pending}`},
		"claim lost":    {schema.GroupKind{Kind: "PersistentVolumeClaim"}, `{}`, []string{`{phase: Lost}`, `{phase: Pending}`}, `{phase: Lost}`},
		"CronJob": {
			schema.GroupKind{Group: "batch", Kind: "CronJob"},
			`{}`,
			[]string{`{active: [{name: a}], lastScheduleTime: "2026-01-01T00:00:00Z"}`, `{active: [{name: b}], lastScheduleTime: "2026-01-02T00:00:00Z"}`},
			`{active: [{name: a}, {name: b}], lastScheduleTime: "2026-01-02T00:00:00Z"}`,
		},
		"PodDisruptionBudget": {
			schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"},
			`{}`,
			[]string{`{observedGeneration: 7, expectedPods: 2, desiredHealthy: 1, currentHealthy: 2, disruptionsAllowed: 1}`, `{observedGeneration: 7, expectedPods: 1, desiredHealthy: 1, currentHealthy: 1}`},
			`{observedGeneration: 5, expectedPods: 3, desiredHealthy: 2, currentHealthy: 3, disruptionsAllowed: 1}`,
		},
		"HorizontalPodAutoscaler": {
			schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
			`{}`,
			[]string{`{observedGeneration: 7, currentReplicas: 2, desiredReplicas: 3}`, `{observedGeneration: 7, currentReplicas: 1, desiredReplicas: 1}`},
			`{observedGeneration: 5, currentReplicas: 3, desiredReplicas: 4}`,
		},
		"Jobs run": {
			schema.GroupKind{Group: "batch", Kind: "Job"},
			`{}`,
			[]string{`{active: 1, startTime: "2026-01-02T00:00:00Z"}`, `{succeeded: 1, startTime: "2026-01-01T00:00:00Z", conditions: [{type: Complete, status: "True"}]}`},
			`{active: 1, succeeded: 1, startTime: "2026-01-01T00:00:00Z"}`,
		},
		"one Job failed, one runs": {
			schema.GroupKind{Group: "batch", Kind: "Job"},
			`{}`,
			[]string{`{active: 1, startTime: "2026-01-02T00:00:00Z"}`, `{failed: 1, startTime: "2026-01-01T00:00:00Z", conditions: [{type: Failed, status: "True", reason: R}]}`},
			`{active: 1, failed: 1, startTime: "2026-01-01T00:00:00Z", conditions: [{type: FailureTarget, status: "True", reason: R}]}`,
		},
		"finished is final": {
			schema.GroupKind{Group: "batch", Kind: "Job"},
			`{conditions: [{type: Complete, status: "True"}]}`,
			[]string{`{active: 1}`},
			`{conditions: [{type: Complete, status: "True"}]}`,
		},
		"custom resource": {schema.GroupKind{Group: "example.com", Kind: "Foo"}, `{}`, []string{`{observedGeneration: 7, phase: Fine}`}, `{observedGeneration: 5, phase: Fine}`},
		"unexplained":     {schema.GroupKind{Kind: "ConfigMap"}, `{}`, []string{`{a: b}`}, ``},
	} {
		in := Input{Kind: c.kind, Generation: 5, Former: status(t, c.former), Decided: true}
		for i, doc := range c.parts {
			in.Parts = append(in.Parts, part(t, string(rune('a'+i)), doc))
		}
		var want map[string]any
		if c.want != "" {
			want = status(t, c.want)
		}
		if diff := cmp.Diff(want, Status(in)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
