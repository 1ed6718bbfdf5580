package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/isthmus-dev/isthmus/pkg/federation/aggregate"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// largestAggregated bounds the statuses that a binding carries; with more copies
// it says of each only whether it is applied and healthy.
const largestAggregated = 128 << 10

// statusOf makes the template's status of its copies': by a script of a user, by
// what is built in, or by a script that is shipped. Nil means that there is
// nothing to say.
func (e *Engine) statusOf(key marks.Key, t *template, u *unstructured.Unstructured, in aggregate.Input, problems map[string]string) map[string]any {
	gvk := key.GroupVersionKind
	if !e.interpreter.Customized(gvk, interpreter.AggregateStatus) &&
		(aggregate.Known(in.Kind) || !e.interpreter.Scripted(gvk, interpreter.AggregateStatus)) {
		return aggregate.Status(in)
	}
	var items []interpreter.StatusItem
	for _, p := range in.Parts {
		if p.StaleSince != "" {
			continue // counts for nothing, and holds nothing up
		}
		items = append(items, interpreter.StatusItem{
			Cluster: p.Cluster, Status: p.Status, Applied: p.Applied, Message: problems[p.Cluster], Health: p.Health,
		})
	}
	desired := u.DeepCopy()
	delete(desired.Object, "status")
	if in.Former != nil {
		desired.Object["status"] = runtime.DeepCopyJSON(in.Former)
	}
	out, err := e.interpreter.Aggregate(context.Background(), gvk, desired.Object, items)
	e.trouble(key, t, interpreter.AggregateStatus, "", err)
	if err != nil {
		return nil
	}
	aggregate.Honest(in, out)
	return out
}

// aggregatedOf is what the binding shows of each copy.
func aggregatedOf(parts []aggregate.Part, problems map[string]string) ([]workv1alpha2.AggregatedStatusItem, error) {
	out := make([]workv1alpha2.AggregatedStatusItem, 0, len(parts))
	size := 0
	for _, p := range parts {
		item := workv1alpha2.AggregatedStatusItem{
			ClusterName: p.Cluster, Applied: p.Applied, AppliedMessage: problems[p.Cluster], Health: p.Health,
		}
		if item.Health == "" || p.StaleSince != "" {
			item.Health = interpreter.Unknown
		}
		if p.Status != nil {
			raw, err := json.Marshal(p.Status)
			if err != nil {
				return nil, fmt.Errorf("status of %s: %w", p.Cluster, err)
			}
			item.Status = &runtime.RawExtension{Raw: raw}
			size += len(raw)
		}
		out = append(out, item)
	}
	if size > largestAggregated {
		for i := range out {
			out[i].Status = nil
		}
	}
	return out, nil
}

// showAggregated puts the state of the copies into the binding's status: at once
// when one is applied or healthy that was not, or the other way round, otherwise
// now and then. It says whether there is something to write.
func (e *Engine) showAggregated(key marks.Key, t *template, status *workv1alpha2.ResourceBindingStatus, parts []aggregate.Part, problems map[string]string) (bool, error) {
	items, err := aggregatedOf(parts, problems)
	if err != nil {
		return false, err
	}
	if sameItems(status.AggregatedStatus, items) {
		return false, nil
	}
	plain := func(x workv1alpha2.AggregatedStatusItem) workv1alpha2.AggregatedStatusItem {
		x.Status = nil
		return x
	}
	edge := !slices.EqualFunc(status.AggregatedStatus, items, func(a, b workv1alpha2.AggregatedStatusItem) bool { return plain(a) == plain(b) })
	if wait := time.Until(e.memo(key, t.UID).items.Add(e.cfg.StatusInterval)); wait > 0 && !edge {
		e.statusQueue.AddAfter(key, wait)
		return false, nil
	}
	e.setMemo(key, func(m *statusMemo) { m.uid, m.items = t.UID, time.Now() })
	status.AggregatedStatus = items
	return true, nil
}

// sameItems compares by value: a stored status has its keys in another order.
func sameItems(a, b []workv1alpha2.AggregatedStatusItem) bool {
	return slices.EqualFunc(a, b, func(x, y workv1alpha2.AggregatedStatusItem) bool {
		sx, sy := x.Status, y.Status
		x.Status, y.Status = nil, nil
		return x == y && sameJSON(sx, sy)
	})
}

func sameJSON(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}
	var x, y any
	return json.Unmarshal(a.Raw, &x) == nil && json.Unmarshal(b.Raw, &y) == nil && equality.Semantic.DeepEqual(x, y)
}
