package adopt

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// AdoptedLabel is on the policies that an adoption has made.
const AdoptedLabel = "isthmus.dev/adopted"

// priority lets the policy of one adopted object win over those that select it
// among others.
const priority int32 = 1000

// PolicyName names the policies of one object.
func PolicyName(apiVersion, kind, name string) string {
	plain := strings.ReplaceAll("adopted-"+strings.ToLower(kind)+"-"+name, ":", ".")
	group, _, found := strings.Cut(apiVersion, "/")
	if !found || builtinGroups[group] {
		if len(plain) <= 253 && plain == strings.ToLower(plain) && !strings.Contains(name, ":") {
			return plain
		}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(group + "/" + kind + "/" + name))
	plain = strings.ToLower(plain)
	return fmt.Sprintf("%s-%016x", strings.TrimRight(plain[:min(len(plain), 230)], ".-"), h.Sum64())
}

// builtinGroups have kinds whose names are unique among them.
var builtinGroups = map[string]bool{
	"apps": true, "batch": true, "autoscaling": true, "policy": true, "networking.k8s.io": true,
	"rbac.authorization.k8s.io": true, "apiextensions.k8s.io": true,
}

// Policies are what keeps the object where it is, as it is: a propagation policy
// for the present clusters and replicas, and an override policy where clusters
// differ, else nil.
func (p *Plan) Policies() (propagation, override runtime.Object) {
	t := p.Template
	meta := metav1.ObjectMeta{
		Name:      PolicyName(t.GetAPIVersion(), t.GetKind(), t.GetName()),
		Namespace: t.GetNamespace(),
		Labels:    map[string]string{AdoptedLabel: "true"},
	}
	selectors := []policyv1alpha1.ResourceSelector{{
		APIVersion: t.GetAPIVersion(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName(),
	}}
	spec := policyv1alpha1.PropagationSpec{
		ResourceSelectors: selectors, Placement: p.placement(), Priority: new(priority),
		ConflictResolution: policyv1alpha1.ConflictOverwrite,
	}
	var rules []policyv1alpha1.RuleWithCluster
	for _, cluster := range slices.Sorted(maps.Keys(p.Overrides)) {
		rules = append(rules, policyv1alpha1.RuleWithCluster{
			TargetCluster: named(cluster),
			Overriders:    policyv1alpha1.Overriders{Plaintext: p.Overrides[cluster]},
		})
	}
	overrideSpec := policyv1alpha1.OverrideSpec{ResourceSelectors: selectors, OverrideRules: rules}
	version := policyv1alpha1.SchemeGroupVersion.String()
	if t.GetNamespace() == "" {
		propagation = &policyv1alpha1.ClusterPropagationPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ClusterPropagationPolicy"}, ObjectMeta: meta, Spec: spec,
		}
		if len(rules) > 0 {
			override = &policyv1alpha1.ClusterOverridePolicy{
				TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ClusterOverridePolicy"}, ObjectMeta: meta, Spec: overrideSpec,
			}
		}
		return propagation, override
	}
	propagation = &policyv1alpha1.PropagationPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "PropagationPolicy"}, ObjectMeta: meta, Spec: spec,
	}
	if len(rules) > 0 {
		override = &policyv1alpha1.OverridePolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "OverridePolicy"}, ObjectMeta: meta, Spec: overrideSpec,
		}
	}
	return propagation, override
}

func named(clusters ...string) *policyv1alpha1.ClusterAffinity {
	return &policyv1alpha1.ClusterAffinity{ClusterNames: clusters}
}

// placement keeps the clusters, and of what is divided the replicas in each.
func (p *Plan) placement() policyv1alpha1.Placement {
	out := policyv1alpha1.Placement{ClusterAffinity: named(slices.Sorted(slices.Values(p.Clusters))...)}
	if len(p.Replicas) < 2 {
		return out
	}
	static := &policyv1alpha1.ClusterPreferences{}
	for _, cluster := range slices.Sorted(maps.Keys(p.Replicas)) {
		static.StaticWeightList = append(static.StaticWeightList, policyv1alpha1.StaticClusterWeight{
			TargetCluster: *named(cluster), Weight: int64(max(p.Replicas[cluster], 1)),
		})
	}
	out.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType:     policyv1alpha1.ReplicasDivided,
		ReplicaDivisionPreference: "Weighted",
		WeightPreference:          static,
	}
	return out
}
