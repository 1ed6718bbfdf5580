package defaults

import (
	"bytes"
	"testing"

	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Every default policy decodes without unknown fields, gives way to others,
// and no kind has two.
func TestPolicies(t *testing.T) {
	raw, err := Files.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for doc := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		var p policyv1alpha1.ClusterPropagationPolicy
		if err := yaml.UnmarshalStrict(doc, &p); err != nil {
			t.Fatal(err)
		}
		if p.Labels[placement.DefaultPolicyLabel] != "true" || p.Spec.Priority == nil || *p.Spec.Priority >= 0 {
			t.Errorf("%s does not give way", p.Name)
		}
		for _, s := range p.Spec.ResourceSelectors {
			if other, dup := seen[s.APIVersion+s.Kind]; dup {
				t.Errorf("%s %s is in %s and %s", s.APIVersion, s.Kind, other, p.Name)
			}
			seen[s.APIVersion+s.Kind] = p.Name
		}
	}
	if seen["apps/v1Deployment"] == "" || seen["v1PersistentVolumeClaim"] != "" {
		t.Errorf("selected kinds: %v", seen)
	}
}
