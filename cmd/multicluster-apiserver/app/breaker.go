package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
)

// addBreakerFlags sets the limits of what is removed without asking.
func addBreakerFlags(fs *pflag.FlagSet, l *breaker.Limits) {
	fs.DurationVar(&l.Window, "breaker-window", l.Window,
		"How long removals from members are counted. Past a limit they stop until an operator answers (multicluster-apiserver breaker).")
	fs.Int64Var(&l.FleetReplicas.Percent, "breaker-replicas-percent", l.FleetReplicas.Percent,
		"Share of all replicas that placements, policies and overrides may take away within the window.")
	fs.Int64Var(&l.FleetReplicas.Floor, "breaker-replicas-floor", l.FleetReplicas.Floor, "Replicas that may go in any case.")
	fs.Int64Var(&l.FleetObjects.Percent, "breaker-objects-percent", l.FleetObjects.Percent, "The same share of managed objects.")
	fs.Int64Var(&l.FleetObjects.Floor, "breaker-objects-floor", l.FleetObjects.Floor, "Managed objects that may go in any case.")
	fs.Int64Var(&l.ClusterReplicas.Percent, "breaker-cluster-percent", l.ClusterReplicas.Percent,
		"Share of one cluster's replicas and objects that may go within the window.")
	fs.Int64Var(&l.Asked, "breaker-asked-factor", l.Asked,
		"How many times as much may go when it was asked of the very template (deleted, or scaled down).")
	fs.Int64Var(&l.Small, "breaker-small-fleet", l.Small,
		"A fleet with fewer replicas is not held to the share: half of this number may go.")
}

// completeBreaker spreads what the flags say over the limits.
func completeBreaker(l breaker.Limits) (breaker.Limits, error) {
	l.ClusterReplicas.Floor, l.ClusterObjects = l.FleetReplicas.Floor, breaker.Limit{Floor: l.FleetObjects.Floor, Percent: l.ClusterReplicas.Percent}
	for _, n := range []int64{l.FleetReplicas.Percent, l.FleetReplicas.Floor, l.FleetObjects.Percent, l.FleetObjects.Floor, l.ClusterReplicas.Percent, l.Small} {
		if n < 0 {
			return l, errors.New("--breaker-*: no limit can be below 0")
		}
	}
	if l.Window <= 0 || l.Asked < 1 {
		return l, errors.New("--breaker-window must be above 0 and --breaker-asked-factor at least 1")
	}
	return l, nil
}

const breakerHelp = `The breaker stops removals from members that are more than ordinary work: a
policy, a weight or a label that was mistyped, a Namespace or a
CustomResourceDefinition that was deleted with much in it. Creations and updates
go on meanwhile.

status tells what is stopped, what waits, and how to go on or back.`

func newBreakerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "breaker", Short: "Removals that wait for an answer: status, approve, reject", Long: breakerHelp,
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBreakerStatusCommand(),
		newBreakerAnswerCommand("approve", breaker.Approved, "Let what waits go", `Let go what waits now. What comes later is counted anew.`),
		newBreakerAnswerCommand("reject", breaker.Rejected, "Keep in the members what a deletion would take",
			`Keep what waits. Copies of templates that are being deleted stay in the members
without our marks, and the templates go. A placement, a weight or an override is
taken back where it was changed; its removals then wait no longer.`))
	return cmd
}

func (c stateClient) breaker(cmd *cobra.Command) ([]engine.BreakerStatus, error) {
	data, err := c.read(cmd.Context(), engine.BreakerName)
	if err != nil {
		return nil, err
	}
	var out []engine.BreakerStatus
	if text := data[engine.BreakerStatusKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			return nil, fmt.Errorf("ConfigMap %s: %w", engine.BreakerName, err)
		}
	}
	return out, nil
}

func newBreakerStatusCommand() *cobra.Command {
	var endpoint endpointFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show what is stopped, and how to go on or back",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := endpoint.state()
			if err != nil {
				return err
			}
			all, err := state.breaker(cmd)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), describeBreaker(all))
			return err
		},
	}
	endpoint.add(cmd.Flags())
	return cmd
}

func describeBreaker(all []engine.BreakerStatus) string {
	if len(all) == 0 {
		return "Nothing is stopped.\n"
	}
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "%s: stopped since %s\n", s.ID, s.Since.Local().Format("2006-01-02 15:04:05"))
		switch {
		case s.IsContainer():
			fmt.Fprintf(&b, "  it was deleted and would take along %s; %s may go without asking\n", s.Done, s.Limit)
		case strings.HasPrefix(s.ID, string(breaker.Asked)):
			fmt.Fprintf(&b, "  many templates were deleted or scaled down: %s have gone, at most %s may\n", s.Done, s.Limit)
		default:
			fmt.Fprintf(&b, "  a change of policies, placements, overrides or Clusters removes much: %s have gone, at most %s may\n", s.Done, s.Limit)
		}
		fmt.Fprintf(&b, "  waiting: %s in %d removals, in %s\n", s.Waiting, s.Removals, strings.Join(s.Clusters, ", "))
		for i, example := range s.Examples {
			if i == 5 {
				fmt.Fprintf(&b, "    and %d more\n", s.Removals-i)
				break
			}
			fmt.Fprintf(&b, "    %s\n", example)
		}
		if s.Answer != "" {
			fmt.Fprintf(&b, "  answered: %s by %s\n", s.Answer, s.By)
		}
		fmt.Fprintf(&b, "  to go on:   multicluster-apiserver breaker approve %s\n", s.ID)
		if s.IsContainer() || strings.HasPrefix(s.ID, string(breaker.Asked)) {
			fmt.Fprintf(&b, "  to go back: multicluster-apiserver breaker reject %s   (copies stay in the members, unmanaged)\n", s.ID)
		} else {
			b.WriteString("  to go back: take the change back; what waits is dropped within a minute\n")
		}
	}
	return b.String()
}

func newBreakerAnswerCommand(use, answer, short, long string) *cobra.Command {
	var endpoint endpointFlags
	var all bool
	cmd := &cobra.Command{
		Use: use + " TRIP... | --all", Short: short, Long: long, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return answerBreaker(cmd, &endpoint, args, all, answer)
		},
	}
	endpoint.add(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "answer everything that is stopped")
	return cmd
}

func answerBreaker(cmd *cobra.Command, endpoint *endpointFlags, trips []string, all bool, answer string) error {
	if all == (len(trips) > 0) {
		return errors.New("name the trips (see: multicluster-apiserver breaker status), or say --all")
	}
	state, err := endpoint.state()
	if err != nil {
		return err
	}
	status, err := state.breaker(cmd)
	if err != nil {
		return err
	}
	known := map[string]engine.BreakerStatus{}
	for _, s := range status {
		known[s.ID] = s
		if all {
			trips = append(trips, s.ID)
		}
	}
	for _, id := range slices.Compact(trips) {
		s, ok := known[id]
		if !ok {
			return fmt.Errorf("nothing is stopped under the name %q (see: multicluster-apiserver breaker status)", id)
		}
		a := engine.BreakerAnswer{Trip: id, Answer: answer, By: operator(), At: metav1.Now()}
		if err := state.set(cmd.Context(), engine.BreakerAnswersName, uuid.NewString(), a); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is %s: %s in %d removals\n", id, answer, s.Waiting, s.Removals); err != nil {
			return err
		}
	}
	return nil
}
