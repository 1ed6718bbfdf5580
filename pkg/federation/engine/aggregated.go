package engine

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/isthmus-dev/isthmus/pkg/federation/aggregate"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

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

// aggregatedOf is what the binding shows of each copy: some fifty bytes. Their
// statuses stay in the members and in memory.
func aggregatedOf(parts []aggregate.Part, problems map[string]string) []workv1alpha2.AggregatedStatusItem {
	out := make([]workv1alpha2.AggregatedStatusItem, 0, len(parts))
	for _, p := range parts {
		item := workv1alpha2.AggregatedStatusItem{
			ClusterName: p.Cluster, Applied: p.Applied, AppliedMessage: problems[p.Cluster], Health: p.Health,
		}
		if item.Health == "" || p.StaleSince != "" {
			item.Health = interpreter.Unknown
		}
		out = append(out, item)
	}
	return out
}

// showAggregated puts the state of the copies into the binding's status when one
// is applied or healthy that was not, or the other way round. It says whether
// there is something to write.
func showAggregated(status *workv1alpha2.ResourceBindingStatus, parts []aggregate.Part, problems map[string]string) bool {
	items := aggregatedOf(parts, problems)
	if slices.Equal(status.AggregatedStatus, items) {
		return false
	}
	status.AggregatedStatus = items
	return true
}
