package aggregate

import "testing"

// Clusters take a template in turns: the rollout is observed and goes on, and
// has not ended before the last one has reported.
func TestTurns(t *testing.T) {
	withheld := func(p *Part) { p.Applied, p.Withheld = false, true }
	unreported := func(p *Part) { p.Generation, p.Unreported = 8, true }
	for name, c := range map[string]struct {
		last              func(*Part)
		former            string
		observed, updated int64
		progressing       string
	}{
		"the last one waits":             {withheld, `{observedGeneration: 4}`, 5, 2, "True ReplicaSetUpdated"},
		"its status is about before":     {unreported, `{observedGeneration: 5}`, 5, 2, "True ReplicaSetUpdated"},
		"the same, when all are at once": {unreported, `{observedGeneration: 4}`, 4, 2, "True ReplicaSetUpdated"},
		"it has reported":                {func(*Part) {}, `{observedGeneration: 4}`, 5, 4, "True NewReplicaSetAvailable"},
	} {
		out := Status(Input{
			Kind: deploymentGK, Generation: 5, Replicas: 4, Decided: true, Former: status(t, c.former),
			Parts: []Part{part(t, "m1", done), part(t, "m2", done, c.last)},
		})
		if got := verdict(out, "Progressing"); number(out, "observedGeneration") != c.observed || number(out, "updatedReplicas") != c.updated || got != c.progressing {
			t.Errorf("%s: observed %v, updated %v, %s", name, out["observedGeneration"], out["updatedReplicas"], got)
		}
	}
}
