package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }

func well(cluster string) Copy { return Copy{Cluster: cluster, Healthy: true} }

func ill(cluster string, s int) Copy { return Copy{Cluster: cluster, Unhealthy: true, Since: ago(s)} }

func TestJudge(t *testing.T) {
	minute := &policyv1alpha1.ApplicationFailoverBehavior{DecisionConditions: policyv1alpha1.DecisionConditions{TolerationSeconds: new(int32(60))}}
	for name, c := range map[string]struct {
		policy *policyv1alpha1.ApplicationFailoverBehavior
		copies []Copy
		failed string
		next   int // seconds
	}{
		"no failover":              {nil, []Copy{ill("a", 1000)}, "", 0},
		"healthy":                  {minute, []Copy{well("a")}, "", 0},
		"the only one":             {minute, []Copy{ill("a", 60)}, "a", 0},
		"not yet":                  {minute, []Copy{ill("a", 59)}, "", 1},
		"by default after 300 s":   {&policyv1alpha1.ApplicationFailoverBehavior{}, []Copy{ill("a", 299)}, "", 1},
		"nobody can say":           {minute, []Copy{{Cluster: "a", Since: ago(1000)}}, "", 0},
		"one of two":               {minute, []Copy{ill("a", 61), well("b")}, "a", 0},
		"one now, one later":       {minute, []Copy{ill("a", 61), ill("b", 20), well("c")}, "a", 40},
		"everywhere":               {minute, []Copy{ill("a", 61), ill("b", 61)}, "", 0},
		"everywhere but unknown":   {minute, []Copy{ill("a", 61), {Cluster: "b"}}, "", 0},
		"nobody knows since when":  {minute, []Copy{{Cluster: "a", Unhealthy: true}}, "", 0},
		"no copies are not failed": {minute, nil, "", 0},
	} {
		failed, next := Judge(c.policy, c.copies, now)
		wait := 0
		if !next.IsZero() {
			wait = int(next.Sub(now) / time.Second)
		}
		if got := strings.Join(failed, " "); got != c.failed || wait != c.next {
			t.Errorf("%s: %q, again in %d s", name, got, wait)
		}
	}
}

func TestSettle(t *testing.T) {
	stages := map[Stage]string{Held: "held", Yielding: "yielding", Going: "going", Ended: "ended"}
	for name, c := range map[string]struct {
		mode     policyv1alpha1.PurgeMode
		age      int
		suppress *bool
		progress Progress
		stage    Stage
		next     int
	}{
		"new ones are not healthy":         {"Gracefully", 10, nil, Progress{Targets: []Copy{{Cluster: "b"}}}, Held, 20},
		"one of them is not":               {"Graciously", 10, nil, Progress{Targets: []Copy{well("b"), ill("c", 1)}}, Held, 20},
		"all are":                          {"Gracefully", 10, nil, Progress{Targets: []Copy{well("b"), well("c")}}, Yielding, 0},
		"no targets are not healthy ones":  {"Gracefully", 10, nil, Progress{}, Held, 20},
		"the grace period is over":         {"Gracefully", 30, nil, Progress{Targets: []Copy{{Cluster: "b"}}}, Yielding, 0},
		"gone":                             {"Gracefully", 10, nil, Progress{Gone: true}, Ended, 0},
		"directly":                         {"Directly", 0, nil, Progress{Targets: []Copy{{Cluster: "b"}}}, Going, 0},
		"immediately":                      {"Immediately", 0, nil, Progress{Targets: []Copy{{Cluster: "b"}}}, Going, 0},
		"directly, with nowhere to go":     {"Directly", 0, nil, Progress{}, Held, 0},
		"never":                            {"Never", 10000, new(true), Progress{Targets: []Copy{well("b")}}, Held, 0},
		"never, until somebody says so":    {"Never", 0, new(false), Progress{Targets: []Copy{well("b")}}, Yielding, 0},
		"never, and somebody deleted it":   {"Never", 10, new(true), Progress{Gone: true}, Ended, 0},
		"suppressed, whatever the mode is": {"Directly", 10, new(true), Progress{Targets: []Copy{well("b")}}, Held, 0},
	} {
		task := &Task{PurgeMode: c.mode, SuppressDeletion: c.suppress, GracePeriodSeconds: new(int32(30)), CreationTimestamp: new(metav1.NewTime(ago(c.age)))}
		stage, next := Settle(task, c.progress, now)
		wait := 0
		if !next.IsZero() {
			wait = int(next.Sub(now) / time.Second)
		}
		if stage != c.stage || wait != c.next {
			t.Errorf("%s: %s, again in %d s", name, stages[stage], wait)
		}
	}
}

func TestTasks(t *testing.T) {
	move := Move{Cluster: "a", Replicas: 2, Message: "m", Before: []string{"c", "a"}, State: map[string]string{"l": "1"}}
	for mode, want := range map[policyv1alpha1.PurgeMode]Task{
		"":            {PurgeMode: "Gracefully", GracePeriodSeconds: new(int32(600))},
		"Graciously":  {PurgeMode: "Gracefully", GracePeriodSeconds: new(int32(600))},
		"Immediately": {PurgeMode: "Directly"},
		"Directly":    {PurgeMode: "Directly"},
		"Never":       {PurgeMode: "Never", SuppressDeletion: new(true)},
	} {
		want.FromCluster, want.Replicas, want.Message = "a", new(int32(2)), "m"
		want.Reason, want.Producer = ReasonApplication, ProducerApplication
		want.ClustersBeforeFailover, want.PreservedLabelState = []string{"a", "c"}, map[string]string{"l": "1"}
		want.CreationTimestamp = new(metav1.NewTime(now))
		got := Application(&policyv1alpha1.ApplicationFailoverBehavior{PurgeMode: mode}, move, now)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
	}
	if _, needed := Cluster(&policyv1alpha1.ClusterFailoverBehavior{}, Move{Cluster: "a"}, now); needed {
		t.Error("a task that says no more than the placement")
	}
	got, needed := Cluster(&policyv1alpha1.ClusterFailoverBehavior{PurgeMode: "Immediately"}, Move{Cluster: "a"}, now)
	if !needed || got.PurgeMode != "Directly" || got.Producer != ProducerCluster {
		t.Errorf("%v %+v", needed, got)
	}
	graceful, needed := Cluster(&policyv1alpha1.ClusterFailoverBehavior{}, move, now)
	if stage, _ := Settle(&graceful, Progress{Targets: []Copy{{}}}, now); !needed || stage != Yielding {
		t.Errorf("a copy that takes its state along from a failed cluster is %v", stage)
	}
}

func TestRemember(t *testing.T) {
	told := map[string]string{"l": "1"}
	left := []Left{{Cluster: "a", Content: "x"}, {Cluster: "b", Content: "y"}, {Cluster: "c", Content: "y", Labels: told, Before: []string{"c", "d"}}, {Cluster: "e", Labels: told, Before: []string{"d"}}}
	show := func(left []Left) string {
		var out []string
		for _, l := range left {
			out = append(out, l.Cluster+"/"+l.Content)
		}
		return strings.Join(out, " ")
	}
	for name, c := range map[string]struct {
		content string
		avoid   bool
		targets []string
		want    string
	}{
		"the same content":           {"y", true, []string{"f"}, "b/y c/y e/"},
		"another content":            {"z", true, []string{"f"}, "c/ e/"},
		"placed afresh":              {"y", false, []string{"f"}, "c/ e/"},
		"nobody is told any more":    {"z", true, []string{"d"}, ""},
		"but what failed is avoided": {"x", true, []string{"d"}, "a/x"},
	} {
		if got := show(Remember(left, c.content, c.avoid, c.targets)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if !Avoided(left, "x", "a") || Avoided(left, "x", "b") || Avoided(left, "", "e") {
		t.Error("a cluster is avoided only with the content that failed there")
	}
	tasks := []Task{{FromCluster: "a", ClustersBeforeFailover: []string{"a"}, PreservedLabelState: map[string]string{"l": "2"}}}
	if got := LabelsFor("f", left, tasks); got["l"] != "2" {
		t.Errorf("the last move has the last word: %v", got)
	}
	if got := LabelsFor("d", left, nil); got != nil {
		t.Errorf("who was there is told %v", got)
	}
}

func TestState(t *testing.T) {
	status := map[string]any{"jobStatus": map[string]any{"jobID": "abc-1"}, "readyReplicas": int64(3), "conditions": []any{map[string]any{"type": "A", "reason": "a b"}}}
	rule := func(path string) *policyv1alpha1.StatePreservation {
		return &policyv1alpha1.StatePreservation{Rules: []policyv1alpha1.StatePreservationRule{{AliasLabelName: "l", JSONPath: path}}}
	}
	for path, want := range map[string]string{
		"{.jobStatus.jobID}":           "abc-1",
		"{.readyReplicas}":             "3",
		"{.conditions[0].type}":        "A",
		"{.conditions[0].reason}":      "!no value of a label",
		"{.nothing}":                   "!nothing",
		"{.jobStatus.jobID":            "!jsonPath",
		"{.jobStatus}":                 "!no value of a label",
		"{.conditions[*].type}-{.x.y}": "!x",
	} {
		got, err := State(rule(path), status)
		if reason, no := strings.CutPrefix(want, "!"); no {
			if err == nil || !strings.Contains(err.Error(), reason) || got != nil {
				t.Errorf("%s: %v, %v", path, got, err)
			}
		} else if err != nil || got["l"] != want {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if got, err := State(nil, nil); got != nil || err != nil {
		t.Errorf("no rules: %v, %v", got, err)
	}
	if _, err := State(rule("{.a}"), nil); err == nil {
		t.Error("a copy without a status moves without its state")
	}
	bad := &policyv1alpha1.FailoverBehavior{
		Application: &policyv1alpha1.ApplicationFailoverBehavior{StatePreservation: rule("{.a")},
		Cluster:     &policyv1alpha1.ClusterFailoverBehavior{StatePreservation: &policyv1alpha1.StatePreservation{Rules: []policyv1alpha1.StatePreservationRule{{AliasLabelName: "a b", JSONPath: "{.a}"}}}},
	}
	if problems := Validate(bad); len(problems) != 2 || Validate(nil) != nil {
		t.Errorf("problems: %v", problems)
	}
}

// However long the new copies take, and in whatever order clusters report: with
// Gracefully never fewer replicas are ready than there were when the move began,
// nor than are wanted, and in the end the old copy is gone.
func TestReadyReplicasAreNeverFewerForAMove(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.Int32Range(1, 8).Draw(rt, "replicas")
		old := rapid.Int32Range(0, total).Draw(rt, "ready in the old copy")
		grace := rapid.Int32Range(1, 20).Draw(rt, "grace")
		unavailable := rapid.Int32Range(0, 1).Draw(rt, "maxUnavailable")
		task := Application(&policyv1alpha1.ApplicationFailoverBehavior{GracePeriodSeconds: &grace}, Move{Cluster: "a", Replicas: total, Before: []string{"a"}}, now)
		a, b := rollout.Cluster{Name: "a", Exists: true, Present: total, Least: total, Available: old}, rollout.Cluster{Name: "b", Target: total}
		floor := min(old, total-unavailable)
		for step := range 100 {
			at := now.Add(time.Duration(step) * time.Second)
			stage, _ := Settle(&task, Progress{Gone: !a.Exists, Targets: []Copy{{Cluster: "b", Healthy: b.Exists && b.Available == total}}}, at)
			if stage == Ended {
				break
			}
			a.Lost = stage == Held
			grants := rollout.Plan(rollout.Workload{Desired: total, Budget: rollout.Budget{Surge: 1, Unavailable: unavailable}}, []rollout.Cluster{a, b})
			b.Exists, b.Present, b.Least = true, grants["b"].Replicas, grants["b"].Replicas
			if stage == Held && a.Present != grants["a"].Replicas {
				rt.Fatalf("a held copy goes from %d to %d", a.Present, grants["a"].Replicas)
			}
			a.Present, a.Least = grants["a"].Replicas, grants["a"].Replicas
			a.Available = min(a.Available, a.Present)
			if a.Present == 0 {
				a.Exists = false
			}
			if b.Available < b.Present && (step > 60 || rapid.Bool().Draw(rt, "another is ready")) {
				b.Available++
			}
			if ready := a.Available + b.Available; ready < floor {
				rt.Fatalf("step %d: %d ready, were %d of %d", step, ready, old, total)
			}
		}
		if a.Exists || b.Present != total {
			rt.Fatalf("in the end: old %+v, new %+v", a, b)
		}
	})
}

func TestUnreplaced(t *testing.T) {
	for name, c := range map[string]struct{ failed, previous, targets, want string }{
		"another comes":           {"a", "a", "b", ""},
		"nothing comes":           {"a", "a b c", "b c", "a"},
		"one comes for two":       {"a b", "a b c", "c d", "b"},
		"two come for two":        {"a b", "a b c", "c d e", ""},
		"it stays":                {"a", "a b", "a b", ""},
		"it was not there":        {"z", "a b", "b", ""},
		"nothing comes, two fail": {"b a", "a b c", "c", "b"},
	} {
		got, found := Unreplaced(strings.Fields(c.failed), strings.Fields(c.previous), strings.Fields(c.targets))
		if got != c.want || found != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, found)
		}
	}
}

func TestOneMoveAtATime(t *testing.T) {
	graceful, never := Task{FromCluster: "a"}, Task{FromCluster: "b", SuppressDeletion: new(true)}
	stages := map[string]Stage{"a": Held, "b": Held}
	if !Waiting([]Task{never, graceful}, stages) || Waiting([]Task{never}, stages) || Waiting([]Task{graceful}, map[string]Stage{"a": Yielding}) {
		t.Error("a move waits for one whose copies have still time, and for no other")
	}
	if got := LeftBy(&graceful, "x"); got.Content != "" {
		t.Error("a cluster that failed is not to be blamed on the application")
	}
	if got := LeftBy(&Task{FromCluster: "a", Producer: ProducerApplication}, "x"); !Avoided([]Left{got}, "x", "a") || slices.Contains([]string{""}, got.Content) {
		t.Errorf("%+v", got)
	}
}
