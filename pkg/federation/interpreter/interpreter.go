package interpreter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/config/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter/sandbox"
)

// Operation is a question about an object, and the name of the function that
// answers it in a script.
type Operation string

// Operations.
const (
	Retain          Operation = "Retain"
	GetReplicas     Operation = "GetReplicas"
	GetComponents   Operation = "GetComponents"
	ReviseReplica   Operation = "ReviseReplica"
	ReflectStatus   Operation = "ReflectStatus"
	AggregateStatus Operation = "AggregateStatus"
	InterpretHealth Operation = "InterpretHealth"
	GetDependencies Operation = "GetDependencies"
)

// Customization is a ResourceInterpreterCustomization.
type Customization = configv1alpha1.ResourceInterpreterCustomization

// scriptOf is one script of a customization.
type scriptOf struct {
	operation Operation
	field     string
	source    string
}

// scriptsOf lists the scripts of a customization, in the order of the fields.
func scriptsOf(r *configv1alpha1.CustomizationRules) []scriptOf {
	var out []scriptOf
	for _, s := range []struct {
		operation Operation
		field     string
		script    *configv1alpha1.Script
	}{
		{Retain, "retention", r.Retention},
		{GetReplicas, "replicaResource", r.ReplicaResource},
		{GetComponents, "componentResource", r.ComponentResource},
		{ReviseReplica, "replicaRevision", r.ReplicaRevision},
		{ReflectStatus, "statusReflection", r.StatusReflection},
		{AggregateStatus, "statusAggregation", r.StatusAggregation},
		{InterpretHealth, "healthInterpretation", r.HealthInterpretation},
		{GetDependencies, "dependencyInterpretation", r.DependencyInterpretation},
	} {
		if s.script != nil {
			out = append(out, scriptOf{s.operation, s.field, s.script.LuaScript})
		}
	}
	return out
}

// Target is the kind that a customization explains.
func Target(c *Customization) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(c.Spec.Target.APIVersion, c.Spec.Target.Kind)
}

// rule answers one operation for one kind.
type rule struct {
	customization string
	source        string
	script        *sandbox.Script
	err           error // why the script cannot be used
}

type rules map[Operation]*rule

// Interpreter answers for all kinds. It may be used at once by many.
type Interpreter struct {
	sandbox *sandbox.Sandbox
	shipped map[schema.GroupVersionKind]rules

	mu    sync.Mutex // serializes Load
	users atomic.Pointer[map[schema.GroupVersionKind]rules]
}

// New makes an interpreter that knows what is built in and what is shipped.
func New(ctx context.Context) (*Interpreter, error) {
	i := &Interpreter{sandbox: sandbox.New(sandbox.DefaultLimits(), map[string]map[string]sandbox.Function{"kube": kubeModule})}
	i.users.Store(&map[schema.GroupVersionKind]rules{})
	list, err := Shipped()
	if err != nil {
		return nil, err
	}
	table, errs := i.compile(ctx, list, nil)
	if len(errs) > 0 {
		return nil, fmt.Errorf("shipped customizations: %w", errors.Join(errs...))
	}
	i.shipped = table
	return i, nil
}

// Load takes the customizations of users in the place of those before. It
// returns the kinds that are understood in another way now. A script that cannot
// be used fails whoever asks for it, and is among the errors.
func (i *Interpreter) Load(ctx context.Context, list []*Customization) (changed []schema.GroupVersionKind, errs []error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	former := *i.users.Load()
	table, errs := i.compile(ctx, list, former)
	i.users.Store(&table)
	for _, two := range []map[schema.GroupVersionKind]rules{former, table} {
		for gvk := range two {
			if !slices.Contains(changed, gvk) && !sameRules(former[gvk], table[gvk]) {
				changed = append(changed, gvk)
			}
		}
	}
	return changed, errs
}

// sameRules: nothing but sources and names decide.
func sameRules(a, b rules) bool {
	plain := func(r rules) map[Operation][2]string {
		out := map[Operation][2]string{}
		for op, x := range r {
			out[op] = [2]string{x.customization, x.source}
		}
		return out
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// compile files the scripts of a list. Of two for one operation of one kind the
// one of the older customization counts.
func (i *Interpreter) compile(ctx context.Context, list []*Customization, former map[schema.GroupVersionKind]rules) (map[schema.GroupVersionKind]rules, []error) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *Customization) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	table, errs := map[schema.GroupVersionKind]rules{}, []error{}
	for _, c := range list {
		gvk := Target(c)
		if table[gvk] == nil {
			table[gvk] = rules{}
		}
		for _, s := range scriptsOf(&c.Spec.Customizations) {
			if other := table[gvk][s.operation]; other != nil {
				errs = append(errs, fmt.Errorf("customization %s: %s of %s is answered by %s already", c.Name, s.operation, gvk.Kind, other.customization))
				continue
			}
			r := &rule{customization: c.Name, source: s.source}
			if was := former[gvk][s.operation]; was != nil && was.source == s.source && was.err == nil {
				r.script = was.script
			} else if r.script, r.err = i.sandbox.Compile(ctx, s.source, string(s.operation)); r.err != nil {
				r.err = &Error{Operation: s.operation, Customization: c.Name, Err: r.err}
				errs = append(errs, r.err)
			}
			table[gvk][s.operation] = r
		}
	}
	return table, errs
}

// Error is what went wrong when an object was to be interpreted.
type Error struct {
	Operation     Operation
	Customization string
	Err           error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s of customization %s: %v", e.Operation, e.Customization, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Customized says whether a script of a user answers; these precede what is
// built in.
func (i *Interpreter) Customized(gvk schema.GroupVersionKind, op Operation) bool {
	return (*i.users.Load())[gvk][op] != nil
}

// Scripted says whether any script answers, of a user or shipped.
func (i *Interpreter) Scripted(gvk schema.GroupVersionKind, op Operation) bool {
	return i.rule(gvk, op) != nil
}

// Looks says whether interpreting copies of the kind takes the whole object.
func (i *Interpreter) Looks(gvk schema.GroupVersionKind) bool {
	return i.Scripted(gvk, Retain) || i.Scripted(gvk, ReflectStatus) || i.Scripted(gvk, InterpretHealth)
}

// Divides says whether replicas of the kind can be read and set by scripts.
func (i *Interpreter) Divides(gvk schema.GroupVersionKind) bool {
	return i.Scripted(gvk, GetReplicas) && i.Scripted(gvk, ReviseReplica)
}

func (i *Interpreter) rule(gvk schema.GroupVersionKind, op Operation) *rule {
	if r := (*i.users.Load())[gvk][op]; r != nil {
		return r
	}
	return i.shipped[gvk][op]
}

// errNoRule is a mistake of the caller.
var errNoRule = errors.New("no script answers")

// call runs the script of an operation and returns its results, as many as asked
// for.
func (i *Interpreter) call(ctx context.Context, gvk schema.GroupVersionKind, op Operation, results int, args ...any) ([]any, error) {
	r := i.rule(gvk, op)
	if r == nil {
		return nil, fmt.Errorf("%s of %s: %w", op, gvk.Kind, errNoRule)
	}
	if r.err != nil {
		return nil, r.err
	}
	out, err := i.sandbox.Call(ctx, r.script, args...)
	if err != nil {
		return nil, &Error{Operation: op, Customization: r.customization, Err: err}
	}
	for len(out) < results {
		out = append(out, nil)
	}
	return out, nil
}

// wrong is a result that is not what the operation asks for.
func (i *Interpreter) wrong(gvk schema.GroupVersionKind, op Operation, format string, args ...any) error {
	name := ""
	if r := i.rule(gvk, op); r != nil {
		name = r.customization
	}
	return &Error{Operation: op, Customization: name, Err: fmt.Errorf(format, args...)} //nolint:err113 // says what was returned
}
