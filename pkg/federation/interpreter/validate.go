package interpreter

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter/sandbox"
)

// Validator checks customizations before they are stored.
type Validator struct{ sandbox *sandbox.Sandbox }

// NewValidator makes a validator.
func NewValidator() *Validator {
	return &Validator{sandbox.New(sandbox.DefaultLimits(), map[string]map[string]sandbox.Function{"kube": kubeModule})}
}

// Validate says what is wrong with a customization: scripts that cannot be used,
// and operations that another one answers already.
func (v *Validator) Validate(ctx context.Context, c *Customization, others []*Customization) field.ErrorList {
	var errs field.ErrorList
	target := field.NewPath("spec", "target")
	if gv, err := schema.ParseGroupVersion(c.Spec.Target.APIVersion); err != nil || gv.Version == "" {
		errs = append(errs, field.Invalid(target.Child("apiVersion"), c.Spec.Target.APIVersion, "must be VERSION or GROUP/VERSION"))
	}
	if c.Spec.Target.Kind == "" {
		errs = append(errs, field.Required(target.Child("kind"), "names the kind that is explained"))
	}
	rules := field.NewPath("spec", "customizations")
	scripts := scriptsOf(&c.Spec.Customizations)
	if len(scripts) == 0 {
		errs = append(errs, field.Required(rules, "has no script"))
	}
	has := map[Operation]bool{}
	for _, s := range scripts {
		has[s.operation] = true
		at := rules.Child(s.field, "luaScript")
		if _, err := v.sandbox.Compile(ctx, s.source, string(s.operation)); err != nil {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, err.Error()))
		}
		if name := answers(c, s.operation, others); name != "" {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("ResourceInterpreterCustomization %s answers %s of this kind already: put the scripts into one", name, s.operation)))
		}
	}
	if has[ReviseReplica] && has[GetComponents] && !has[GetReplicas] {
		errs = append(errs, field.Forbidden(rules.Child("replicaRevision"), "an object with components is not divided: use replicaResource"))
	}
	return errs
}

// counted are the kinds whose replicas are the engine's, with their rollouts and
// autoscalers.
var counted = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "Deployment"}: true, {Group: "apps", Kind: "StatefulSet"}: true,
	{Group: "apps", Kind: "ReplicaSet"}: true, {Kind: "ReplicationController"}: true,
}

// Unasked says which scripts of a customization are not asked, and why.
func Unasked(c *Customization) []string {
	if !counted[Target(c).GroupKind()] {
		return nil
	}
	var out []string
	for _, s := range scriptsOf(&c.Spec.Customizations) {
		if s.operation == GetReplicas || s.operation == ReviseReplica {
			out = append(out, fmt.Sprintf("spec.customizations.%s is not asked: replicas of a %s are divided by what is built in", s.field, c.Spec.Target.Kind))
		}
	}
	return out
}

// answers names another customization for the same operation of the same kind.
func answers(c *Customization, op Operation, others []*Customization) string {
	for _, o := range others {
		if o.Name == c.Name || Target(o) != Target(c) {
			continue
		}
		for _, s := range scriptsOf(&o.Spec.Customizations) {
			if s.operation == op {
				return o.Name
			}
		}
	}
	return ""
}
