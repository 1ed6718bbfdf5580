package disruption

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

func TestDivide(t *testing.T) {
	n := func(i int32) *intstr.IntOrString { v := intstr.FromInt32(i); return &v }
	percent := intstr.FromString("50%")
	for name, c := range map[string]struct {
		value    *intstr.IntOrString
		replicas map[string]int32
		want     map[string]int32
	}{
		"by replicas":       {n(6), map[string]int32{"a": 6, "b": 3}, map[string]int32{"a": 4, "b": 2}},
		"nothing to guard":  {n(2), map[string]int32{"a": 2, "b": 0}, map[string]int32{"a": 2, "b": 0}},
		"zero":              {n(0), map[string]int32{"a": 2, "b": 1}, map[string]int32{"a": 0, "b": 0}},
		"percentages stay":  {&percent, map[string]int32{"a": 2}, nil},
		"not said":          {nil, map[string]int32{"a": 2}, nil},
		"nothing runs":      {n(2), map[string]int32{"a": 0, "b": 0}, nil},
		"nothing is placed": {n(2), nil, nil},
	} {
		if diff := cmp.Diff(c.want, Divide(c.value, c.replicas, "u")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// All clusters together guard, or allow, as much as the template says.
func TestSumKeepsTheIntent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := intstr.FromInt32(rapid.Int32Range(0, 50).Draw(t, "value"))
		replicas := rapid.MapOfN(rapid.StringMatching("[a-f]"), rapid.Int32Range(1, 20), 1, 6).Draw(t, "replicas")
		var sum int32
		for cluster, n := range Divide(&value, replicas, "u") {
			if n < 0 {
				t.Fatalf("%s: %d", cluster, n)
			}
			sum += n
		}
		if sum != value.IntVal {
			t.Fatalf("%d of %d", sum, value.IntVal)
		}
	})
}
