package bench

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// quantile is the smallest value that at least the share q of the values do not
// exceed. It is zero without values.
func quantile[T cmp.Ordered](values []T, q float64) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }

// ratio is part/whole, and NaN where there is nothing to compare with.
func ratio(part, whole time.Duration) float64 {
	if whole <= 0 {
		return math.NaN()
	}
	return float64(part) / float64(whole)
}
