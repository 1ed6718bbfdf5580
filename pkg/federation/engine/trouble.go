package engine

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// troubles remembers, by template, what could not be interpreted.
type troubles struct {
	mu sync.Mutex
	of map[marks.Key]map[troubleKey]string
}

type troubleKey struct {
	operation interpreter.Operation
	cluster   string
}

// set records an outcome; it says whether it is another than before.
func (x *troubles) set(key marks.Key, at troubleKey, problem string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.of[key][at]
	if was == problem {
		return false
	}
	switch {
	case problem != "":
		if x.of == nil {
			x.of = map[marks.Key]map[troubleKey]string{}
		}
		if x.of[key] == nil {
			x.of[key] = map[troubleKey]string{}
		}
		x.of[key][at] = problem
	case len(x.of[key]) == 1:
		delete(x.of, key)
	default:
		delete(x.of[key], at)
	}
	return true
}

// forget drops what is remembered of a template.
func (x *troubles) forget(key marks.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, key)
}

// list names the problems of a template, each once.
func (x *troubles) list(key marks.Key) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	said := map[string]struct{}{}
	for at, problem := range x.of[key] {
		if at.cluster != "" {
			problem = at.cluster + ": " + problem
		}
		said[problem] = struct{}{}
	}
	return slices.Sorted(maps.Keys(said))
}

// trouble records the outcome of an operation, and tells a failure once.
func (e *Engine) trouble(key marks.Key, t *template, op interpreter.Operation, cluster string, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if !e.troubles.set(key, troubleKey{op, cluster}, problem) {
		return
	}
	e.statusQueue.Add(key)
	if problem == "" || t == nil {
		return
	}
	if cluster != "" {
		problem = cluster + ": " + problem
	}
	e.event(key, t, corev1.EventTypeWarning, string(op)+"Failed", "%s", problem)
}

// refuse tells, once, that a template is never propagated although a policy
// names it.
func (e *Engine) refuse(key marks.Key, t *template, why string) {
	ref := referenceOf(key, t)
	ref.ExactName = true // one that selects it among others means those
	index, _ := e.policies.current()
	policy, named := index.Match(ref, "")
	if !named {
		why = ""
	}
	if e.troubles.set(key, troubleKey{operation: neverPropagated}, why) && named {
		e.event(key, t, corev1.EventTypeWarning, reasonForbidden, "policy %s names it, but %s", policy.Name, why)
	}
}

// neverPropagated stands for an operation of which a template may be in trouble.
const neverPropagated interpreter.Operation = "Propagate"

// setInterpreted puts what could not be interpreted among the conditions, or
// takes it away.
func setInterpreted(conditions *[]metav1.Condition, problems []string, generation int64) (changed bool) {
	if len(problems) == 0 {
		return meta.RemoveStatusCondition(conditions, workv1alpha2.ConditionInterpreted)
	}
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: workv1alpha2.ConditionInterpreted, Status: metav1.ConditionFalse, Reason: "CustomizationFailed",
		Message: strings.Join(problems, "; "), ObservedGeneration: generation,
	})
}
