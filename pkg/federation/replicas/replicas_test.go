package replicas

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNext(t *testing.T) {
	content, own, both, nobody := Copy{true, 3, true, false}, Copy{true, 3, false, true}, Copy{true, 3, true, true}, Copy{true, 3, false, false}
	for name, c := range map[string]struct {
		copy            Copy
		granted         int32
		scaled, content bool
		want            Step
		value           int32
	}{
		"not there yet":                        {Copy{}, 5, false, true, Create, 5},
		"not there yet, autoscaled":            {Copy{}, 5, true, true, Create, 5},
		"nothing to do":                        {own, 3, false, false, Nothing, 3},
		"content goes on, its claim is taken":  {content, 3, false, true, Claim, 3},
		"also for an autoscaler":               {content, 9, true, true, Claim, 3},
		"content goes on, taken already":       {both, 3, false, true, Nothing, 3},
		"scaled":                               {own, 4, false, false, Scale, 4},
		"scaled while the content claims it":   {content, 4, false, false, Scale, 4},
		"an autoscaler's":                      {own, 4, true, false, Nothing, 3},
		"an autoscaler's, nobody of us claims": {nobody, 4, true, true, Nothing, 3},
		"taken back at the present value":      {nobody, 4, false, false, Claim, 3},
	} {
		if got, value := Next(c.copy, c.granted, c.scaled, c.content); got != c.want || value != c.value {
			t.Errorf("%s: %s %d, want %s %d", name, got, value, c.want, c.value)
		}
	}
}

func TestInCharge(t *testing.T) {
	normal, fromZero := []Autoscaler{{1, 5}}, []Autoscaler{{0, 5}}
	for name, c := range map[string]struct {
		scalers           []Autoscaler
		template, present int32
		fixed, want       bool
	}{
		"none":                        {nil, 3, 3, false, false},
		"one":                         {normal, 3, 7, false, true},
		"an override decides":         {normal, 3, 7, true, false},
		"switched off":                {normal, 0, 7, false, false},
		"rests at zero":               {normal, 3, 0, false, false},
		"zero is within its bounds":   {fromZero, 3, 0, false, true},
		"switched off, zero in reach": {fromZero, 0, 0, false, false},
	} {
		if got := InCharge(c.scalers, c.template, c.present, c.fixed); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWanted(t *testing.T) {
	for _, c := range []struct{ replicas, lo, hi, want int32 }{{1, 3, 9, 3}, {12, 3, 9, 9}, {4, 3, 9, 4}, {0, 3, 9, 0}, {2, 0, 0, 1}} {
		if got := Wanted(c.replicas, []Autoscaler{{c.lo, c.hi}}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if Wanted(7, nil) != 7 {
		t.Error("without an autoscaler the number is the template's")
	}
}

func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Autoscaler{Min: rapid.Int32Range(0, 40).Draw(t, "min")}
		s.Max = max(1, s.Min+rapid.Int32Range(0, 40).Draw(t, "more"))
		weights := rapid.MapOfN(rapid.StringMatching("[a-f]"), rapid.Int32Range(0, 20), 1, 6).Draw(t, "weights")
		var lo, hi int32
		for cluster, b := range Bounds(s, weights, "u") {
			if b.Max < b.Min || b.Max < 1 || b.Min < 1 && s.Min > 0 {
				t.Fatalf("%s: %+v of %+v", cluster, b, s)
			}
			lo, hi = lo+b.Min, hi+b.Max
		}
		n := int32(len(weights))
		if wantLo, wantHi := max(s.Min, min(s.Min, 1)*n), max(s.Max, n); lo != wantLo || hi != wantHi {
			t.Fatalf("sums %d and %d of %+v over %d", lo, hi, s, n)
		}
	})
}

// field plays spec.replicas under server-side apply.
type field struct {
	value        int32
	content, own bool
	other        bool
}

func (f *field) release() {
	if !f.content && !f.own && !f.other {
		f.value = 1 // the API's default
	}
}

// Whatever comes after what: the value only ever changes by the autoscaler or
// to what was granted, never by somebody letting go.
func TestNobodyLetsGoTooEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &field{}
		exists := false
		granted, scaled := int32(3), false
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				granted = rapid.Int32Range(2, 9).Draw(t, "granted")
			case 1:
				scaled = !scaled
			case 2:
				if exists && scaled {
					*f = field{value: rapid.Int32Range(2, 9).Draw(t, "autoscaled"), other: true}
				}
			case 3:
				due := rapid.Bool().Draw(t, "content")
				before := f.value
				step, value := Next(Copy{Exists: exists, Present: f.value, Content: f.content, Own: f.own}, granted, scaled, due)
				switch step {
				case Nothing:
				case Create:
					*f, exists, due = field{value: value, content: true}, true, false
				case Claim:
					f.own = true
					if value != f.value {
						t.Fatal("a claim changes the value")
					}
				case Scale:
					*f = field{value: value, own: true}
				}
				if due {
					f.content = false // content is written without replicas
					f.release()
				}
				if f.value != before && f.value != granted {
					t.Fatalf("%s changed %d to %d, granted %d", step, before, f.value, granted)
				}
				if scaled && step == Scale {
					t.Fatal("scaled against an autoscaler")
				}
			}
		}
	})
}

// What may be an autoscaler's is left alone wherever it could turn out to be
// one's; what cannot be is not kept waiting.
func TestMayBeInCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template, present := rapid.Int32Range(0, 5).Draw(t, "template"), rapid.Int32Range(0, 5).Draw(t, "present")
		fixed := rapid.Bool().Draw(t, "fixed")
		scalers := []Autoscaler{{Min: rapid.Int32Range(0, 2).Draw(t, "min"), Max: 9}}
		if InCharge(scalers, template, present, fixed) && !MayBeInCharge(template, fixed) {
			t.Fatal("replicas of an autoscaler are not left alone")
		}
	})
	if MayBeInCharge(0, false) || MayBeInCharge(3, true) {
		t.Error("what is switched off, or said by an override, waits for nobody")
	}
}
