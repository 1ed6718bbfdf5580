package placement

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// ClustersAnnotation is the annotation of a Namespace that names the clusters which
// anything in it may be placed in, separated by commas.
const ClustersAnnotation = "isthmus.dev/clusters"

// errNoNames: a limit that allows nothing is more likely an accident.
var errNoNames = errors.New("names no cluster")

// ParseClusters reads the annotation: sorted names, without duplicates.
func ParseClusters(text string) ([]string, error) {
	var out []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return nil, fmt.Errorf("%q is no name of a cluster: %s", name, problems[0])
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, errNoNames
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Limit is the placement within the clusters that are allowed, and nothing else
// changed: what a cluster is refused for, by policy or limit, is one thing.
func Limit(p *policyv1alpha1.Placement, allowed []string) *policyv1alpha1.Placement {
	out := p.DeepCopy()
	if len(out.ClusterAffinities) == 0 {
		if out.ClusterAffinity == nil {
			out.ClusterAffinity = &policyv1alpha1.ClusterAffinity{}
		}
		limitAffinity(out.ClusterAffinity, allowed)
	}
	for i := range out.ClusterAffinities {
		term := &out.ClusterAffinities[i]
		limitAffinity(&term.ClusterAffinity, allowed)
		for j := range term.OverflowAffinities {
			limitAffinity(&term.OverflowAffinities[j].ClusterAffinity, allowed)
		}
	}
	return out
}

func limitAffinity(a *policyv1alpha1.ClusterAffinity, allowed []string) {
	if len(a.ClusterNames) == 0 {
		a.ClusterNames = slices.Clone(allowed)
		return
	}
	both := slices.DeleteFunc(slices.Clone(a.ClusterNames), func(name string) bool { return !slices.Contains(allowed, name) })
	if len(both) == 0 {
		// No names would mean all clusters.
		a.ExcludeClusters = append(a.ExcludeClusters, a.ClusterNames...)
		return
	}
	a.ClusterNames = both
}
