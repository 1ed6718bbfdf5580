package trend

import (
	"math"
	"testing"
	"time"
)

func TestPerMinute(t *testing.T) {
	var points []Point
	for i := range 100 {
		at := time.Duration(i) * 6 * time.Second
		value := 100 + 3*at.Minutes() + 5*float64(i%2)
		if at < 3*time.Minute {
			value = 1000 - 200*at.Minutes() // what is before does not count
		}
		points = append(points, Point{at, value})
	}
	if got, ok := PerMinute(points, 3*time.Minute); !ok || math.Abs(got-3) > 0.1 {
		t.Errorf("slope %v, %v; want 3", got, ok)
	}
	if got, ok := PerMinute(points, 0); !ok || got > -20 {
		t.Errorf("slope of all %v, %v", got, ok)
	}
	if got, ok := PerMinute(points[:9], 0); ok {
		t.Errorf("slope %v of nine points", got)
	}
}
