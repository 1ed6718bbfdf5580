package rebalance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/apps/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
)

func ref(name string) appsv1alpha1.ObjectReference {
	return appsv1alpha1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "d", Name: name}
}

func at(second int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
}

func TestTrigger(t *testing.T) {
	for name, c := range map[string]struct {
		generation, observed int64
		asked, last          int // 0 is never
		want                 int
	}{
		"never decided":                   {1, 0, 0, 0, 10},
		"decided before":                  {1, 0, 0, 5, 10},
		"decided in the same second":      {1, 0, 0, 10, 11},
		"decided since":                   {1, 0, 0, 15, 16},
		"asked before":                    {1, 0, 5, 6, 10},
		"asked by this one":               {1, 0, 10, 6, 0},
		"asked later by another":          {1, 0, 12, 6, 0},
		"named later, by a change":        {2, 1, 0, 15, 20},
		"named later, and asked for once": {2, 1, 20, 15, 0},
	} {
		r := &appsv1alpha1.WorkloadRebalancer{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(10), Generation: c.generation}}
		r.Status.ObservedGeneration = c.observed
		var spec workv1alpha2.ResourceBindingSpec
		var status workv1alpha2.ResourceBindingStatus
		if c.asked > 0 {
			spec.RescheduleTriggeredAt = new(at(c.asked))
		}
		if c.last > 0 {
			status.LastScheduledTime = new(at(c.last))
		}
		got := Trigger(r, &spec, &status, at(20).Add(time.Millisecond))
		if c.want == 0 && !got.IsZero() || c.want > 0 && got != at(c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFromStartToEnd(t *testing.T) {
	r := &appsv1alpha1.WorkloadRebalancer{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1), Generation: 1}}
	r.Spec.Workloads = []appsv1alpha1.ObjectReference{ref("a"), ref("gone"), ref("a")}
	r.Spec.TTLSecondsAfterFinished = new(int32(30))
	if p := Pending(r); len(p) != 2 || p[0] != ref("a") || p[1] != ref("gone") {
		t.Fatalf("pending at first: %v", p)
	}
	if _, ends := End(r); ends {
		t.Error("it ends before it has begun")
	}
	r.Status = Result(r, map[appsv1alpha1.ObjectReference]bool{ref("gone"): true}, at(5).Time)
	if o := r.Status.ObservedWorkloads; len(o) != 3 || o[0].Result != "Successful" || o[1].Result != "Failed" || o[1].Reason != appsv1alpha1.RebalanceObjectNotFound {
		t.Errorf("results %v", o)
	}
	if p := Pending(r); len(p) != 0 {
		t.Errorf("pending when all is done: %v", p)
	}
	if again := Result(r, nil, at(9).Time); !again.FinishTime.Equal(r.Status.FinishTime) {
		t.Errorf("finished again at %v", again.FinishTime)
	}
	if end, ends := End(r); !ends || !end.Equal(at(35).Time) {
		t.Errorf("ends at %v", end)
	}
	r.Generation, r.Spec.Workloads = 2, append(r.Spec.Workloads, ref("b"))
	if p := Pending(r); len(p) != 2 || p[0] != ref("gone") || p[1] != ref("b") {
		t.Errorf("pending after a change: %v", p)
	}
	if _, ends := End(r); ends {
		t.Error("it ends before the change is done")
	}
	r.Status = Result(r, nil, at(40).Time)
	if o := r.Status.ObservedWorkloads; len(o) != 4 || o[1].Result != "Successful" || *r.Status.FinishTime != at(40) {
		t.Errorf("results %v at %v", o, r.Status.FinishTime)
	}
	r.Spec.TTLSecondsAfterFinished = nil
	if _, ends := End(r); ends {
		t.Error("it ends without a TTL")
	}
}
