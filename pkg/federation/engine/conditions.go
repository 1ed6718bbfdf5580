package engine

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// Conditions of a binding beside Scheduled and FullyApplied. They appear when
// there is something to say.
const (
	// conditionAdopted says whether objects that were there have been taken over.
	conditionAdopted = "Adopted"
	// conditionDropped names fields of the template that a member does not know.
	conditionDropped = "FieldsDropped"
)

// remarks are what the members' records say beyond success and failure.
type remarks struct {
	refused map[string]string
	dropped map[string]string
	adopted []string
	// settled: every target has been dealt with since the engine started.
	settled bool
}

func (e *Engine) remarks(key marks.Key, t *template, d *decision) remarks {
	r := remarks{refused: map[string]string{}, dropped: map[string]string{}, settled: true}
	for _, cluster := range slices.Sorted(maps.Keys(d.targets)) {
		m := e.member(cluster)
		if m == nil {
			continue
		}
		a := m.record(key)
		if a.template != t.UID && a.problem == "" {
			r.settled = false
		}
		if a.refused != "" {
			r.refused[cluster] = a.refused
		}
		if a.dropped != "" {
			r.dropped[cluster] = a.dropped
		}
		if a.adopted {
			r.adopted = append(r.adopted, cluster)
		}
	}
	return r
}

// setRemarks turns remarks into conditions; it reports whether any changed.
func setRemarks(conditions *[]metav1.Condition, r remarks, generation int64) bool {
	set := func(kind string, status metav1.ConditionStatus, reason, message string) bool {
		return meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		})
	}
	changed := false
	was := meta.FindStatusCondition(*conditions, conditionAdopted)
	switch {
	case len(r.refused) > 0:
		changed = set(conditionAdopted, metav1.ConditionFalse, "Refused", describeProblems(r.refused))
	case !r.settled:
	case len(r.adopted) > 0 && (was == nil || was.Status != metav1.ConditionTrue), was != nil && was.Status == metav1.ConditionFalse:
		changed = set(conditionAdopted, metav1.ConditionTrue, "InPlace", "")
	}
	was = meta.FindStatusCondition(*conditions, conditionDropped)
	switch {
	case len(r.dropped) > 0:
		changed = set(conditionDropped, metav1.ConditionTrue, "UnknownToMember", describeProblems(r.dropped)) || changed
	case r.settled && was != nil && was.Status == metav1.ConditionTrue:
		changed = set(conditionDropped, metav1.ConditionFalse, "NothingDropped", "") || changed
	}
	return changed
}
