package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
	"github.com/isthmus-dev/isthmus/pkg/federation/fence"
	"github.com/isthmus-dev/isthmus/pkg/registry/install"
)

const restoreHelp = `After the control plane was restored from a backup, the members hold the work
of a time that it does not know. It notices by the fence, an object in each
member, and writes nothing to any member until an operator accepts the loss.

status shows both sides. accept goes on: templates are applied again as the
backup has them; what was created after the backup stays in the members and is
reported as orphans; what was deleted after the backup is created again.`

func newRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore", Short: "After a restore from a backup: what members hold, and how to go on", Long: restoreHelp,
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRestoreStatusCommand(), newRestoreAcceptCommand())
	return cmd
}

// state is the client of our ConfigMaps in the control plane.
type stateClient struct{ typedcorev1.ConfigMapInterface }

func (f *endpointFlags) state() (stateClient, error) {
	config, err := f.config()
	if err != nil {
		return stateClient{}, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return stateClient{}, fmt.Errorf("client of the endpoint: %w", err)
	}
	return stateClient{client.CoreV1().ConfigMaps(install.Namespace)}, nil
}

// read returns the data of a ConfigMap; none when there is none.
func (c stateClient) read(ctx context.Context, name string) (map[string]string, error) {
	cm, err := c.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", install.Namespace, name, err)
	}
	return cm.Data, nil
}

// readEach decodes every key of a ConfigMap.
func readEach[T any](ctx context.Context, c stateClient, name string) (map[string]T, error) {
	data, err := c.read(ctx, name)
	if err != nil {
		return nil, err
	}
	out := map[string]T{}
	for key, text := range data {
		var v T
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, fmt.Errorf("ConfigMap %s, key %s: %w", name, key, err)
		}
		out[key] = v
	}
	return out, nil
}

// set writes one key of a ConfigMap.
func (c stateClient) set(ctx context.Context, name, key string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	cm, err := c.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{key: string(raw)}}
		_, err = c.Create(ctx, cm, metav1.CreateOptions{FieldManager: "isthmus-operator"})
	} else if err == nil {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[key] = string(raw)
		_, err = c.Update(ctx, cm, metav1.UpdateOptions{FieldManager: "isthmus-operator"})
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", install.Namespace, name, err)
	}
	return nil
}

// fences are both sides of the fence.
type fences struct {
	record   fence.Record
	findings map[string]engine.FenceFinding
}

func (c stateClient) fences(ctx context.Context) (fences, error) {
	var out fences
	data, err := c.read(ctx, engine.FenceName)
	if err != nil {
		return out, err
	}
	if data != nil {
		if out.record, err = fence.Decode[fence.Record](data); err != nil {
			return out, err
		}
	}
	out.findings, err = readEach[engine.FenceFinding](ctx, c, engine.FenceStatusName)
	return out, err
}

// with names the clusters with a verdict.
func (f fences) with(verdict fence.Verdict) []string {
	var out []string
	for _, cluster := range slices.Sorted(maps.Keys(f.findings)) {
		if f.findings[cluster].Verdict == verdict.String() {
			out = append(out, cluster)
		}
	}
	return out
}

func newRestoreStatusCommand() *cobra.Command {
	var endpoint endpointFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show for each cluster what it was written by, and what this control plane knows",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := endpoint.state()
			if err != nil {
				return err
			}
			f, err := state.fences(cmd.Context())
			if err != nil {
				return err
			}
			return printFences(cmd, f)
		},
	}
	endpoint.add(cmd.Flags())
	return cmd
}

func printFences(cmd *cobra.Command, f fences) error {
	out := cmd.OutOrStdout()
	_, _ = fmt.Fprintf(out, "This control plane is in epoch %d, step %d.\n\n", f.record.Epoch, f.record.Step)
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "CLUSTER\tWRITES\tEPOCH\tSTEP\tREVISION\tSEEN\tWHY")
	for _, cluster := range slices.Sorted(maps.Keys(f.findings)) {
		x := f.findings[cluster]
		writes, epoch, step, revision := "stopped", "-", "-", "-"
		if x.Verdict == fence.Pass.String() || x.Verdict == fence.Claim.String() {
			writes = "allowed"
		}
		if x.Mark != nil {
			epoch, step, revision = fmt.Sprint(x.Mark.Epoch), fmt.Sprint(x.Mark.Step), fmt.Sprint(x.Mark.Revision)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cluster, writes, epoch, step, revision, x.At.UTC().Format(time.RFC3339), x.Why)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	var err error
	if behind := f.with(fence.Behind); len(behind) > 0 {
		_, err = fmt.Fprintf(out, `
This control plane is behind %s: it was restored from a backup, or its etcd has
lost writes. Nothing is written to any member. To go on with what it has:

  multicluster-apiserver restore accept

To go back instead, stop it and bring the newer etcd.
`, strings.Join(behind, ", "))
	}
	if foreign := f.with(fence.Foreign); len(foreign) > 0 && err == nil {
		_, err = fmt.Fprintf(out, `
Another control plane writes to %s. Unjoin there, or take it over:

  multicluster-apiserver restore accept --take-over %s
`, strings.Join(foreign, ", "), strings.Join(foreign, ","))
	}
	return err
}

func newRestoreAcceptCommand() *cobra.Command {
	var endpoint endpointFlags
	var takeOver []string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "accept", Short: "Go on with what this control plane knows",
		Long: restoreHelp, Args: cobra.NoArgs, SilenceUsage: true,
		Example: `  multicluster-apiserver restore status
  multicluster-apiserver restore accept`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return acceptRestore(cmd, &endpoint, takeOver, wait)
		},
	}
	endpoint.add(cmd.Flags())
	cmd.Flags().StringSliceVar(&takeOver, "take-over", nil, "clusters to take from another control plane, which then writes to them no more")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait until the leader has acted on it")
	return cmd
}

var errNotAccepted = errors.New("the leader has not acted on it yet; it will as soon as it runs (see: multicluster-apiserver restore status)")

func acceptRestore(cmd *cobra.Command, endpoint *endpointFlags, takeOver []string, wait time.Duration) error {
	state, err := endpoint.state()
	if err != nil {
		return err
	}
	f, err := state.fences(cmd.Context())
	if err != nil {
		return err
	}
	behind, foreign := f.with(fence.Behind), f.with(fence.Foreign)
	for _, cluster := range takeOver {
		if !slices.Contains(foreign, cluster) {
			return fmt.Errorf("no other control plane writes to %q (see: multicluster-apiserver restore status)", cluster)
		}
	}
	if len(behind) == 0 && len(takeOver) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Nothing to accept: no member holds more than this control plane knows.")
		return err
	}
	a := engine.Acceptance{ID: uuid.NewString(), By: operator(), At: metav1.Now(), TakeOver: takeOver}
	if err := state.set(cmd.Context(), engine.AcceptanceName, engine.AcceptanceKey, a); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), wait)
	defer cancel()
	for f.record.Accepted != a.ID {
		select {
		case <-ctx.Done():
			return errNotAccepted
		case <-time.After(500 * time.Millisecond):
		}
		if f, err = state.fences(ctx); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Accepted. Writes go on in epoch %d. What the members hold beyond this control plane is listed by: multicluster-apiserver orphans\n", f.record.Epoch)
	return err
}

// operator is who runs the command, for the record.
func operator() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}
