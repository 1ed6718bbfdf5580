package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
)

const orphansHelp = `List the orphans: copies in members that this control plane has written, whose
template it does not have and of which nothing records that it was deleted.
They are left after a restore from a backup, for instance, and are never deleted
on their own.

To manage one again, create its template: the copy is taken over as it is. To
have it deleted, or left to the member without our marks:

  multicluster-apiserver orphans delete  --cluster m1 apps/v1/Deployment/shop/web
  multicluster-apiserver orphans release --cluster m1 --all`

func newOrphansCommand() *cobra.Command {
	var endpoint endpointFlags
	cmd := &cobra.Command{
		Use: "orphans", Short: "Copies in members without a template: list, delete, release", Long: orphansHelp,
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := endpoint.state()
			if err != nil {
				return err
			}
			all, err := state.orphans(cmd.Context())
			if err != nil {
				return err
			}
			return printOrphans(cmd, all)
		},
	}
	endpoint.add(cmd.Flags())
	cmd.AddCommand(
		newOrphanOrderCommand("delete", engine.OrphanDelete, "Delete orphans from a cluster"),
		newOrphanOrderCommand("release", engine.OrphanRelease, "Leave orphans to the cluster, without our marks"))
	return cmd
}

func (c stateClient) orphans(ctx context.Context) (map[string]engine.Orphans, error) {
	all, err := readEach[engine.Orphans](ctx, c, engine.OrphansName)
	maps.DeleteFunc(all, func(_ string, o engine.Orphans) bool { return o.Count == 0 })
	return all, err
}

func printOrphans(cmd *cobra.Command, all map[string]engine.Orphans) error {
	out := cmd.OutOrStdout()
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "There are no orphans.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "CLUSTER\tOBJECT (GROUP/VERSION/KIND/NAMESPACE/NAME)\tSEEN")
	for _, cluster := range slices.Sorted(maps.Keys(all)) {
		o := all[cluster]
		for _, key := range o.Keys {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", cluster, key, o.At.UTC().Format(time.RFC3339))
		}
		if more := o.Count - len(o.Keys); more > 0 {
			_, _ = fmt.Fprintf(w, "%s\tand %d more\t\n", cluster, more)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func newOrphanOrderCommand(use, action, short string) *cobra.Command {
	var endpoint endpointFlags
	var cluster string
	var all bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use: use + " --cluster NAME OBJECT... | --all", Short: short, Long: orphansHelp, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return orderOrphans(cmd, &endpoint, cluster, args, all, action, wait)
		},
	}
	endpoint.add(cmd.Flags())
	cmd.Flags().StringVar(&cluster, "cluster", "", "the cluster that holds them")
	cmd.Flags().BoolVar(&all, "all", false, "all that are listed of the cluster")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait until it is done")
	return cmd
}

func orderOrphans(cmd *cobra.Command, endpoint *endpointFlags, cluster string, keys []string, all bool, action string, wait time.Duration) error {
	if cluster == "" || all == (len(keys) > 0) {
		return errors.New("give --cluster, and the objects as `orphans` lists them or --all")
	}
	state, err := endpoint.state()
	if err != nil {
		return err
	}
	listed, err := state.orphans(cmd.Context())
	if err != nil {
		return err
	}
	if all {
		keys = listed[cluster].Keys
	}
	for _, key := range keys {
		if !slices.Contains(listed[cluster].Keys, key) {
			return fmt.Errorf("%s is not listed as an orphan in %s (see: multicluster-apiserver orphans)", key, cluster)
		}
	}
	if len(keys) == 0 {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "There are no orphans in %s.\n", cluster)
		return err
	}
	id := uuid.NewString()
	order := engine.OrphanOrder{Cluster: cluster, Action: action, Keys: keys, By: operator(), At: metav1.Now()}
	if err := state.set(cmd.Context(), engine.OrphanOrdersName, id, order); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), wait)
	defer cancel()
	for {
		data, err := state.read(ctx, engine.OrphanOrdersName)
		if err != nil {
			return err
		}
		if data[id] == "" {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d orphans in %s: %s\n", action, len(keys), cluster, strings.Join(keys[:min(len(keys), 5)], ", "))
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not done yet; it will be as soon as the cluster %s can be written to: %w", cluster, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
