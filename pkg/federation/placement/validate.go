package placement

import "errors"

// Validate says what of a policy could not work, beyond what its schema
// refuses.
func Validate(p *Policy) []error {
	_, errs := NewIndex([]*Policy{p})
	if _, err := groupsOf(&p.Spec.Placement); err != nil {
		errs = append(errs, err)
	}
	if r := p.Spec.Placement.ReplicaScheduling; r != nil && r.WeightPreference != nil {
		if len(r.WeightPreference.StaticWeightList) > 0 && r.WeightPreference.DynamicWeight != "" {
			errs = append(errs, errBothWeights)
		}
		if err := weighStatically(r.WeightPreference.StaticWeightList, nil); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

var errBothWeights = errors.New("weightPreference: use either staticWeightList or dynamicWeight")
