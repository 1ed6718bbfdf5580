// Package trend says how fast something grows.
package trend

import "time"

// Point is one measurement.
type Point struct {
	At    time.Duration
	Value float64
}

// PerMinute is the slope of the line that fits the points of after a moment
// best; false when they are fewer than ten.
func PerMinute(points []Point, after time.Duration) (float64, bool) {
	var n, sumX, sumY, sumXY, sumXX float64
	for _, p := range points {
		if p.At < after {
			continue
		}
		x := p.At.Minutes()
		n, sumX, sumY, sumXY, sumXX = n+1, sumX+x, sumY+p.Value, sumXY+x*p.Value, sumXX+x*x
	}
	if spread := n*sumXX - sumX*sumX; n >= 10 && spread > 0 {
		return (n*sumXY - sumX*sumY) / spread, true
	}
	return 0, false
}
