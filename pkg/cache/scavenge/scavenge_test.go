package scavenge

import "testing"

func TestMuch(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		free, unused, live, objects uint64
		want                        bool
	}{
		"a small process keeps a little": {4 * mib, 8 * mib, 10 * mib, 14 * mib, false},
		"after a peak":                   {400 * mib, 0, 100 * mib, 100 * mib, true},
		"a large heap keeps its half":    {40 * mib, 20 * mib, 100 * mib, 100 * mib, false},
		"garbage is unused":              {0, 0, 100 * mib, 160 * mib, true},
		"live grows before it is known":  {0, 0, 100 * mib, 90 * mib, false},
	} {
		if got := much(c.free, c.unused, c.live, c.objects); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
