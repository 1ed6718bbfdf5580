package engine

import (
	"encoding/json"
	"fmt"
	"strconv"

	schedulingv1 "k8s.io/api/scheduling/v1"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// followed is the policy that speaks for a template.
type followed struct {
	policy *placement.Policy
	// former: the policy must not act yet, what was recorded stays, the claim
	// too.
	former bool
	// waits says what the policy waits for before it places anything.
	waits string
}

// referenceOf is what policies are matched with.
func referenceOf(key marks.Key, t *template) placement.Template {
	return placement.Template{
		APIVersion: key.GroupVersion().String(), Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
		Labels: t.Labels, ExactName: intent.NeedsExactName(key.GroupKind()),
	}
}

// follow finds the policy, and whether it may act.
func (e *Engine) follow(key marks.Key, t *template, b *binding, ref placement.Template) followed {
	index, overrides := e.policies.current()
	policy, ok := index.Match(ref, claimed(b, t))
	if !ok || !speaks(index, policy, b) || key.GroupKind() == namespaceKind && t.Labels[skipNamespaceLabel] == "true" {
		return followed{}
	}
	f := followed{policy: policy}
	for _, name := range policy.Spec.DependentOverrides {
		namespace := key.Namespace
		if policy.Namespace == "" {
			namespace = "" // of a cluster policy: either kind
		}
		if !overrides.Has(namespace, name) && !overrides.Has(key.Namespace, name) {
			f.waits, f.former = fmt.Sprintf("policy %s waits for the override policy %s", policy.Name, name), true
		}
	}
	placed := b != nil && b.Spec.Resource.UID == t.UID && b.Spec.Placement != nil
	if placed && policy.Spec.ActivationPreference == policyv1alpha1.LazyActivation && !e.changedSince(key, t, b) {
		f.former = true
	}
	if !placed {
		f.former = false // there is nothing to keep: see waits
	}
	return f
}

// contentAnnotation, on a binding whose policy is Lazy, is the content of the
// template for which the policy was followed last.
const contentAnnotation = "isthmus.dev/template-content"

func contentMark(t *template) string { return strconv.FormatUint(t.content, 16) }

// changedSince says whether the template has changed since it was placed. Where
// nobody knows, it has not.
func (e *Engine) changedSince(key marks.Key, t *template, b *binding) bool {
	if mark := b.Annotations[contentAnnotation]; mark != "" {
		return mark != contentMark(t)
	}
	d := e.decisionOf(key)
	return d != nil && d.uid == t.UID && d.content != t.content
}

// claimed is the policy that a binding says it follows; without a binding, the
// one that the template says, on which the binding's claim is mirrored.
func claimed(b *binding, t *template) (uid policyUID) {
	if b == nil {
		return claimIn(t.Labels)
	}
	return claimOf(b)
}

// spreads says whether replicas are divided, not copied.
func spreads(p *policyv1alpha1.Placement) bool {
	return p != nil && p.ReplicaScheduling != nil && p.ReplicaScheduling.ReplicaSchedulingType != policyv1alpha1.ReplicasDuplicated
}

func (e *Engine) adoptPolicy(want *workv1alpha2.ResourceBindingSpec, p *placement.Policy, t *template, s shape) {
	want.PropagateDeps = p.Spec.PropagateDeps
	want.Placement = p.Spec.Placement.DeepCopy()
	want.ConflictResolution = p.Spec.ConflictResolution
	if p.Spec.Suspension != nil {
		want.Suspension = &workv1alpha2.Suspension{Suspension: *p.Spec.Suspension.DeepCopy()}
	}
	want.PreserveResourcesOnDeletion = p.Spec.PreserveResourcesOnDeletion
	want.SchedulerName = p.Spec.SchedulerName
	want.Failover = p.Spec.Failover.DeepCopy()
	want.SchedulePriority = e.priorityOf(p.Spec.SchedulePriority, s)
	want.WorkloadAffinityGroups = groupsOf(p.Spec.Placement.WorkloadAffinity, t.Labels)
}

func keepFormer(want *workv1alpha2.ResourceBindingSpec, b *binding) {
	want.PropagateDeps = b.Spec.PropagateDeps
	want.Placement = b.Spec.Placement
	want.ConflictResolution = b.Spec.ConflictResolution
	want.Suspension = b.Spec.Suspension.DeepCopy()
	want.PreserveResourcesOnDeletion = b.Spec.PreserveResourcesOnDeletion
	want.SchedulerName = b.Spec.SchedulerName
	want.Failover = b.Spec.Failover
	want.SchedulePriority = b.Spec.SchedulePriority
	want.WorkloadAffinityGroups = b.Spec.WorkloadAffinityGroups
}

// keepSchedulingSuspension: it is others who suspend decisions, on the binding.
func keepSchedulingSuspension(want *workv1alpha2.ResourceBindingSpec, b *binding) {
	if b == nil || b.Spec.Suspension == nil || b.Spec.Suspension.Scheduling == nil {
		return
	}
	if want.Suspension == nil {
		want.Suspension = &workv1alpha2.Suspension{}
	}
	want.Suspension.Scheduling = new(*b.Spec.Suspension.Scheduling)
}

// groupsOf are the affinity groups that a template's labels put it in.
func groupsOf(a *policyv1alpha1.WorkloadAffinity, labels map[string]string) *workv1alpha2.WorkloadAffinityGroups {
	if a == nil {
		return nil
	}
	group := func(g *policyv1alpha1.WorkloadGroup) string {
		if g == nil {
			return ""
		}
		if v, ok := labels[g.GroupByLabelKey]; ok {
			return g.GroupByLabelKey + "=" + v
		}
		return ""
	}
	out := workv1alpha2.WorkloadAffinityGroups{AffinityGroup: group(a.Affinity), AntiAffinityGroup: group(a.AntiAffinity)}
	if out == (workv1alpha2.WorkloadAffinityGroups{}) {
		return nil
	}
	return &out
}

// cohort finds where the other templates of the affinity groups are.
func (e *Engine) cohort(key marks.Key, groups *workv1alpha2.WorkloadAffinityGroups) (together, apart []string) {
	if groups == nil {
		return nil, nil
	}
	if groups.AffinityGroup != "" {
		// The first of a group is free: nil.
		together = e.bindings.clustersOf(key, inGroup(key.Namespace, groups.AffinityGroup))
	}
	if groups.AntiAffinityGroup != "" {
		apart = e.bindings.clustersOf(key, apartFrom(key.Namespace, groups.AntiAffinityGroup))
	}
	return together, apart
}

// priorityOf resolves a priority class; one that does not exist gives none.
func (e *Engine) priorityOf(p *policyv1alpha1.SchedulePriority, s shape) *workv1alpha2.SchedulePriority {
	if p == nil {
		return nil
	}
	name := p.PriorityClassName
	if p.PriorityClassSource == policyv1alpha1.PodPriorityClass {
		if name = ""; s.Spec.Template != nil && s.Spec.Template.Spec != nil {
			name = s.Spec.Template.Spec.PriorityClassName
		}
	}
	class := e.template(marks.Key{GroupVersionKind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), Name: name})
	if class == nil {
		return nil
	}
	var c schedulingv1.PriorityClass
	if err := json.Unmarshal(class.raw, &c); err != nil {
		return nil
	}
	return &workv1alpha2.SchedulePriority{Priority: c.Value}
}
