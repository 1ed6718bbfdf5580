package propagation

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const budget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}
`

// A budget of three is one of two and one of one, and follows the replicas.
func TestDisruptionBudgetIsDivided(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, budget, "-n", ns, "apply", "-f", "-")
	kubectl(t, divided(2, 1, 0), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(6, "{maxSurge: 1, maxUnavailable: 0}"), "-n", ns, "apply", "-f", "-")
	waitBudgets(t, ns, map[string]int{"m1": 2, "m2": 1, "m3": 0})
	kubectl(t, divided(1, 0, 2), "-n", ns, "apply", "-f", "-")
	waitBudgets(t, ns, map[string]int{"m1": 1, "m2": 0, "m3": 2})
}

func waitBudgets(t *testing.T, ns string, want map[string]int) {
	t.Helper()
	direct := members(t)
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		got := map[string]int{}
		for name, client := range direct {
			b, err := client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "web", getNow)
			if err != nil {
				return err
			}
			got[name] = b.Spec.MinAvailable.IntValue()
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("minAvailable %v, want %v", got, want)
		}
		return nil
	})
}
