package override

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Step is one policy's rule that applies to a cluster.
type Step struct {
	Policy string // KIND NAMESPACE/NAME
	Rule   int
}

// Trace applies the rules as Apply does, and calls each after every one of them
// with the object as it is then.
func (r Rules) Trace(obj *unstructured.Unstructured, cluster *placement.Cluster, each func(Step, *unstructured.Unstructured)) error {
	for _, p := range r.policies {
		name := "ClusterOverridePolicy " + p.Name
		if p.Namespace != "" {
			name = "OverridePolicy " + p.Namespace + "/" + p.Name
		}
		for i, rule := range p.rules {
			if !rule.affinity.Matches(cluster) {
				continue
			}
			if err := apply(obj, rule.overriders); err != nil {
				return fmt.Errorf("%s: overrideRules[%d]: %w", name, i, err)
			}
			each(Step{name, i}, obj)
		}
	}
	return nil
}
