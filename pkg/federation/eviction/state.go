package eviction

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// errNoStatus: what has to be told to the new copy is not known.
var errNoStatus = errors.New("the copy has no status")

// State reads what the rules name in a copy's status. All or nothing: without
// its state an application is not to be moved.
func State(s *policyv1alpha1.StatePreservation, status map[string]any) (map[string]string, error) {
	if s == nil || len(s.Rules) == 0 {
		return nil, nil
	}
	if status == nil {
		return nil, errNoStatus
	}
	out := make(map[string]string, len(s.Rules))
	for _, r := range s.Rules {
		p, err := parse(r)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := p.Execute(&b, status); err != nil {
			return nil, fmt.Errorf("statePreservation: %s: %w", r.JSONPath, err)
		}
		if problems := validation.IsValidLabelValue(b.String()); len(problems) > 0 {
			return nil, fmt.Errorf("statePreservation: %s: %q is no value of a label: %s", r.JSONPath, shorten(b.String()), problems[0])
		}
		out[r.AliasLabelName] = b.String()
	}
	return out, nil
}

func shorten(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

func parse(r policyv1alpha1.StatePreservationRule) (*jsonpath.JSONPath, error) {
	p := jsonpath.New(r.AliasLabelName)
	if err := p.Parse(r.JSONPath); err != nil {
		return nil, fmt.Errorf("statePreservation: jsonPath %q: %w", r.JSONPath, err)
	}
	return p, nil
}

// Validate says what of a policy's failover could not work, beyond what the
// schema refuses.
func Validate(f *policyv1alpha1.FailoverBehavior) (problems []error) {
	if f == nil {
		return nil
	}
	check := func(s *policyv1alpha1.StatePreservation) {
		if s == nil {
			return
		}
		for _, r := range s.Rules {
			if _, err := parse(r); err != nil {
				problems = append(problems, err)
			}
			if wrong := validation.IsQualifiedName(r.AliasLabelName); len(wrong) > 0 {
				problems = append(problems, fmt.Errorf("statePreservation: aliasLabelName %q: %s", r.AliasLabelName, wrong[0]))
			}
		}
	}
	if f.Application != nil {
		check(f.Application.StatePreservation)
	}
	if f.Cluster != nil {
		check(f.Cluster.StatePreservation)
	}
	return problems
}
