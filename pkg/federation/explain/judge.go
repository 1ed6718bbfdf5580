package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/drift"
	"github.com/isthmus-dev/isthmus/pkg/federation/enablement"
	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Facts are all that a report is made of.
type Facts struct {
	Template    *unstructured.Unstructured
	Resource    string
	Binding     *workv1alpha2.ResourceBinding // nil when there is none
	Policies    []*placement.Policy
	Overrides   []override.Policy
	Clusters    []clusterv1alpha1.Cluster
	Copies      map[string]Copy // of the targets
	Breaker     []engine.BreakerStatus
	Interpreter *interpreter.Interpreter
	// Limit are the clusters that the namespace allows; nil allows all.
	Limit []string
}

// Copy is what could be read in a member.
type Copy struct {
	Object  *unstructured.Unstructured // nil when there is none
	Problem string                     // why it is not known
}

// Report is what is to be said.
type Report struct {
	Template   string
	Forbidden  string // why it is never propagated
	Policy     string
	Others     []string // policies that match, too
	Replicas   int32
	Bound      bool
	Clusters   []Cluster // targets first
	Conditions []metav1.Condition
	Waits      []string
	Problems   []string
}

// Cluster is one member's part.
type Cluster struct {
	Name     string
	Target   bool
	Replicas int32
	Excluded string // why it is no target
	State    string
	// Overrides are the policies' changes, Drift the differences of the copy.
	Overrides, Drift []string
	Rendered         *unstructured.Unstructured
}

// Judge makes the report.
func Judge(f Facts) Report {
	u := f.Template
	gvk := u.GroupVersionKind()
	r := Report{Template: title(u)}
	secretType, _, _ := unstructured.NestedString(u.Object, "type")
	if why, no := intent.Forbidden(gvk.GroupKind(), u, secretType); no {
		r.Forbidden = why
		return r
	}
	ref := placement.Template{
		APIVersion: u.GetAPIVersion(), Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName(),
		Labels: u.GetLabels(), ExactName: intent.NeedsExactName(gvk.GroupKind()),
	}
	speaks := f.judgePolicy(ref, &r)
	index, errs := override.NewIndex(f.Overrides)
	for _, err := range errs {
		r.Problems = append(r.Problems, err.Error())
	}
	rules := index.For(ref)
	if f.Binding != nil {
		r.Bound, r.Replicas, r.Conditions = true, f.Binding.Spec.Replicas, f.Binding.Status.Conditions
	}
	for i := range f.Clusters {
		r.Clusters = append(r.Clusters, f.judgeCluster(&f.Clusters[i], speaks, rules))
	}
	slices.SortStableFunc(r.Clusters, func(a, b Cluster) int {
		return cmp.Or(-compareBool(a.Target, b.Target), cmp.Compare(a.Name, b.Name))
	})
	r.Waits = f.waits(gvk)
	return r
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func title(u *unstructured.Unstructured) string {
	gvk := u.GroupVersionKind()
	name := strings.ToLower(gvk.Kind)
	if gvk.Group != "" {
		name += "." + gvk.Group
	}
	name += "/" + u.GetName()
	if ns := u.GetNamespace(); ns != "" {
		name += " in namespace " + ns
	}
	return name
}

func policyName(p *placement.Policy) string {
	if p.Namespace != "" {
		return "PropagationPolicy " + p.Namespace + "/" + p.Name
	}
	return "ClusterPropagationPolicy " + p.Name
}

// judgePolicy names the policy that speaks, which the binding knows, and the
// others that match; it returns the one that speaks.
func (f *Facts) judgePolicy(ref placement.Template, r *Report) *placement.Policy {
	var matching []*placement.Policy
	for _, p := range f.Policies {
		index, errs := placement.NewIndex([]*placement.Policy{p})
		for _, err := range errs {
			r.Problems = append(r.Problems, err.Error())
		}
		if _, ok := index.Match(ref, ""); ok {
			matching = append(matching, p)
		}
	}
	all, _ := placement.NewIndex(matching)
	best, found := all.Match(ref, "")
	speaks := f.claimed()
	switch {
	case speaks != nil && (!found || speaks != best):
		r.Policy = policyName(speaks) + why(speaks, ref) + ", which has spoken for it since before"
	case speaks != nil:
		r.Policy = policyName(speaks) + why(speaks, ref)
	case found && f.Binding == nil:
		r.Policy = policyName(best) + why(best, ref) + ", not acted on yet"
		speaks = best
	case found:
		r.Policy = "none that speaks: its policy was deleted, and what it has placed stays (" + policyName(best) + " would match)"
	case f.Binding != nil && len(f.Binding.Spec.RequiredBy) > 0:
		r.Policy = "none: it follows what needs it (" + required(f.Binding) + ")"
	case f.Binding != nil && f.Binding.Spec.Placement != nil:
		r.Policy = "none any more: what it has placed stays"
	default:
		r.Policy = "none matches: it goes nowhere"
	}
	for _, p := range matching {
		if p != speaks {
			r.Others = append(r.Others, policyName(p)+why(p, ref))
		}
	}
	return speaks
}

func required(b *workv1alpha2.ResourceBinding) string {
	var names []string
	for _, s := range b.Spec.RequiredBy {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// claimed is the policy that the binding follows.
func (f *Facts) claimed() *placement.Policy {
	if f.Binding == nil {
		return nil
	}
	a := f.Binding.Annotations
	namespace, name := a["propagationpolicy.karmada.io/namespace"], a["propagationpolicy.karmada.io/name"]
	if name == "" {
		namespace, name = "", a["clusterpropagationpolicy.karmada.io/name"]
	}
	for _, p := range f.Policies {
		if p.Name == name && p.Namespace == namespace {
			return p
		}
	}
	return nil
}

// why says by what a policy selects, and what rank it has.
func why(p *placement.Policy, ref placement.Template) string {
	by := ""
	for _, s := range p.Spec.ResourceSelectors {
		if s.APIVersion != ref.APIVersion || s.Kind != ref.Kind {
			continue
		}
		switch {
		case s.Name == ref.Name:
			by = "by name"
		case s.Name == "" && s.LabelSelector != nil && by == "":
			by = "by label"
		case s.Name == "" && by == "":
			by = "by kind"
		}
	}
	parts := []string{}
	if by != "" {
		parts = append(parts, by)
	}
	if p.Spec.Priority != nil && *p.Spec.Priority != 0 {
		parts = append(parts, fmt.Sprintf("priority %d", *p.Spec.Priority))
	}
	if p.Default {
		parts = append(parts, "a default: gives way to any other")
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func (f *Facts) judgeCluster(c *clusterv1alpha1.Cluster, speaks *placement.Policy, rules override.Rules) Cluster {
	out := Cluster{Name: c.Name}
	if f.Binding != nil {
		for _, t := range f.Binding.Spec.Clusters {
			if t.Name == c.Name {
				out.Target, out.Replicas = true, t.Replicas
			}
		}
	}
	if !out.Target {
		out.Excluded = f.excluded(c, speaks)
		return out
	}
	out.State = f.state(c)
	seen := placementCluster(c)
	preview := engine.Previewer{Template: f.Template, Binding: f.Binding.Spec, Interpreter: f.Interpreter, There: f.Copies[c.Name].Object}
	plain, err := preview.Render(&seen)
	if err != nil {
		out.State += "; " + err.Error()
		return out
	}
	before := plain
	err = rules.Trace(plain.DeepCopy(), &seen, func(s override.Step, u *unstructured.Unstructured) {
		for _, d := range redacted(u, drift.Between(u.Object, before.Object)) {
			out.Overrides = append(out.Overrides, fmt.Sprintf("%s: %s", s.Policy, changed(d)))
		}
		before = u.DeepCopy()
	})
	if err != nil {
		out.State += "; " + err.Error()
		return out
	}
	preview.Overrides = rules
	if out.Rendered, err = preview.Render(&seen); err != nil {
		out.State += "; " + err.Error()
		return out
	}
	out.Drift = f.drift(c.Name, out.Rendered)
	return out
}

// changed words a difference as what a policy does.
func changed(d drift.Difference) string {
	if d.Missing {
		return d.Path + " is added"
	}
	return fmt.Sprintf("%s becomes %s instead of %s", d.Path, short(d.Wanted), short(d.Have))
}

func short(v any) string {
	const longest = 80
	s := fmt.Sprint(v)
	if len(s) > longest {
		return "another value"
	}
	return s
}

func redacted(u *unstructured.Unstructured, list []drift.Difference) []drift.Difference {
	if u.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		return drift.Redact(list)
	}
	return list
}

// state says what became of the copy.
func (f *Facts) state(c *clusterv1alpha1.Cluster) string {
	parts := []string{}
	if !meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1alpha1.ClusterConditionReady) {
		parts = append(parts, "the cluster is not ready")
	}
	for _, s := range f.Binding.Status.AggregatedStatus {
		if s.ClusterName != c.Name {
			continue
		}
		word := "not applied"
		if s.Applied {
			word = "applied"
		}
		parts = append(parts, word)
		if s.Health != "" && s.Health != interpreter.Unknown {
			parts = append(parts, strings.ToLower(s.Health))
		}
		if s.AppliedMessage != "" {
			parts = append(parts, s.AppliedMessage)
		}
	}
	return strings.Join(parts, ", ")
}

// drift says where the copy is not what it would be told now.
func (f *Facts) drift(cluster string, rendered *unstructured.Unstructured) []string {
	c, known := f.Copies[cluster]
	switch {
	case !known:
		return nil
	case c.Problem != "":
		return []string{"cannot be compared: " + c.Problem}
	case c.Object == nil:
		return []string{"there is no copy"}
	}
	var out []string
	for _, d := range redacted(rendered, drift.Between(rendered.Object, c.Object.Object)) {
		if !decidedElsewhere(c.Object, d.Path) {
			out = append(out, d.String())
		}
	}
	if c.Object.GetAnnotations()[marks.Hold] != "" {
		out = append(out, "the copy is on hold ("+marks.Hold+")")
	}
	return out
}

// divided are fields that the placement of other objects decides.
var divided = map[schema.GroupKind][]string{
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: {"spec.minReplicas", "spec.maxReplicas"},
	{Group: "policy", Kind: "PodDisruptionBudget"}:          {"spec.minAvailable", "spec.maxUnavailable"},
}

// decidedElsewhere: a value that the template does not decide is no difference:
// bounds that are divided, and replicas that an autoscaler has set.
func decidedElsewhere(have *unstructured.Unstructured, path string) bool {
	path = strings.TrimPrefix(path, ".")
	if have.GetKind() == "ResourceQuota" && strings.HasPrefix(path, "spec.hard") {
		return true
	}
	if slices.Contains(divided[have.GroupVersionKind().GroupKind()], path) {
		return true
	}
	return path == "spec.replicas" && slices.ContainsFunc(have.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "scale" && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:replicas"`)
	})
}

func placementCluster(c *clusterv1alpha1.Cluster) placement.Cluster {
	return placement.Cluster{
		Name: c.Name, Labels: c.Labels, Provider: c.Spec.Provider, Region: c.Spec.Region, Zones: c.Spec.Zones, Taints: c.Spec.Taints,
		Ready: meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1alpha1.ClusterConditionReady),
	}
}

// excluded says why a cluster is no target.
func (f *Facts) excluded(c *clusterv1alpha1.Cluster, speaks *placement.Policy) string {
	p := f.placement(speaks)
	if p == nil {
		return "no policy sends it there"
	}
	if f.Limit != nil && !slices.Contains(f.Limit, c.Name) {
		return "its namespace is limited to " + strings.Join(f.Limit, ", ") + " (" + placement.ClustersAnnotation + ")"
	}
	// How many clusters there are to be and how replicas are divided is no
	// reason against a cluster by itself.
	single := p.DeepCopy()
	single.SpreadConstraints, single.ReplicaScheduling = nil, nil
	d := placement.Place(placement.Input{UID: f.Template.GetUID(), Placement: *single, Clusters: []placement.Cluster{placementCluster(c)}})
	if !d.OK() {
		_, reason, ok := strings.Cut(d.Message, "available: 1 ")
		if !ok {
			reason = d.Message
		}
		return reason
	}
	if lacks := enablement.Lacking(c.Status.APIEnablements, f.Template.GroupVersionKind(), f.Resource); lacks != "" {
		return "lacks " + lacks
	}
	switch {
	case len(p.SpreadConstraints) > 0:
		return "not chosen: spreadConstraints limit how many clusters there are"
	case p.ReplicaScheduling != nil:
		return "not chosen: it gets none of the replicas"
	}
	return "not placed yet"
}

func (f *Facts) placement(speaks *placement.Policy) *policyv1alpha1.Placement {
	switch {
	case speaks != nil:
		return &speaks.Spec.Placement
	case f.Binding != nil:
		return f.Binding.Spec.Placement
	}
	return nil
}

// waits lists removals of this template's copies that wait for an answer.
func (f *Facts) waits(gvk schema.GroupVersionKind) []string {
	key := marks.Key{GroupVersionKind: gvk, Namespace: f.Template.GetNamespace(), Name: f.Template.GetName()}.String()
	var out []string
	for _, trip := range f.Breaker {
		for _, example := range trip.Examples {
			if strings.Contains(example, key) {
				out = append(out, trip.ID+": "+example)
			}
		}
	}
	return out
}
