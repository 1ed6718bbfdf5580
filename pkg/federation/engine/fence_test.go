package engine

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Whatever asks for it, no write leaves the process unless it leads, nothing is
// stopped, and the member holds this leader's mark.
func TestGuard(t *testing.T) {
	for name, c := range map[string]struct {
		method           string
		checked, ours    bool
		lease            error
		blocked, fencing bool
		passes           bool
	}{
		"a write":                       {method: "PATCH", checked: true, ours: true, passes: true},
		"a deletion":                    {method: "DELETE", checked: true, ours: true, passes: true},
		"before the members are asked":  {method: "PATCH", ours: true},
		"without the lease":             {method: "PATCH", checked: true, ours: true, lease: errors.New("over")},
		"the fence without the lease":   {method: "PUT", checked: true, fencing: true, lease: errors.New("over")},
		"behind":                        {method: "POST", checked: true, ours: true, blocked: true},
		"the fence, behind":             {method: "PUT", checked: true, blocked: true, fencing: true},
		"a member without our mark":     {method: "PUT", checked: true},
		"the fence of such a member":    {method: "PUT", checked: true, fencing: true, passes: true},
		"a read, with nothing in place": {method: "GET", lease: errors.New("over"), blocked: true, passes: true},
	} {
		e := &Engine{}
		e.cfg.MayWrite = func() error { return c.lease }
		e.fence = newFenceKeeper(e)
		e.fence.epoch.Store(7)
		e.fence.checked.Store(c.checked)
		if c.blocked {
			why := "m1: lost state"
			e.fence.blocked.Store(&why)
		}
		m := &member{name: "m1", engine: e}
		m.fence.ours.Store(c.ours)
		ctx := t.Context()
		if c.fencing {
			ctx = fencing(ctx)
		}
		r, err := http.NewRequestWithContext(ctx, c.method, "https://m1/api", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		var sent *http.Request
		answer, err := guard{m, roundTrip(func(r *http.Request) (*http.Response, error) { sent = r; return &http.Response{Body: http.NoBody}, nil })}.RoundTrip(r)
		if (err == nil) != c.passes || (sent != nil) != c.passes {
			t.Errorf("%s: sent %v, %v", name, sent != nil, err)
		}
		if answer != nil {
			_ = answer.Body.Close()
		}
		if sent != nil && c.method != "GET" && !strings.HasSuffix(sent.UserAgent(), "epoch/7") {
			t.Errorf("%s: the user agent %q does not tell the epoch", name, sent.UserAgent())
		}
	}
}

// A write based on newer state than the mark covers does not pass on the mark
// that is there.
func TestAllows(t *testing.T) {
	var f memberFence
	f.covers.Store(10)
	if f.allows(1) {
		t.Error("a mark that is not ours allows a write")
	}
	f.ours.Store(true)
	if !f.allows(10) || f.allows(11) {
		t.Errorf("a mark up to 10 allows 10: %v, 11: %v", f.allows(10), f.allows(11))
	}
	if got := latest("7", "12", "", "x"); got != 12 {
		t.Errorf("the latest of some versions is %d", got)
	}
}

func TestWeight(t *testing.T) {
	batch := schema.GroupKind{Group: "batch", Kind: "Job"}
	for name, c := range map[string]struct {
		gk   schema.GroupKind
		copy copyRecord
		want int64
	}{
		"Deployment": {deploymentKind, copyRecord{replicas: 4, status: []byte(`{"active":9}`)}, 4},
		"DaemonSet":  {daemonSetKind, copyRecord{status: []byte(`{"desiredNumberScheduled":3}`)}, 3},
		"Job":        {batch, copyRecord{status: []byte(`{"active":2}`)}, 2},
		"ConfigMap":  {schema.GroupKind{Kind: "ConfigMap"}, copyRecord{}, 0},
		"no status":  {daemonSetKind, copyRecord{}, 0},
	} {
		if got := c.copy.weight(c.gk); got != c.want {
			t.Errorf("%s stands for %d Pods, want %d", name, got, c.want)
		}
	}
}

func TestSuperseded(t *testing.T) {
	f := newFenceKeeper(&Engine{})
	for range 3 { // never blocks
		if err := f.superseded(); !errors.Is(err, errSuperseded) {
			t.Fatal(err)
		}
	}
	select {
	case err := <-f.over:
		if !errors.Is(err, errSuperseded) {
			t.Error(err)
		}
	default:
		t.Error("a leader that was replaced goes on")
	}
}
