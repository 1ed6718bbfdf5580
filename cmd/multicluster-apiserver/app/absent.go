package app

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/client"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

func newAbsentCommand() *cobra.Command {
	var endpoint endpointFlags
	var undo bool
	cmd := &cobra.Command{
		Use:   "absent NAME",
		Short: "Declare a member absent, so that LISTs no longer wait for it",
		Long: `Declare the member NAME absent.

After a restart of the endpoint, LISTs answer 503 while a member that was once
loaded cannot be read, because clients take an omission for deletions. Declaring
the member absent ends that wait: its objects are left out, with a warning. The
declaration has no effect on what runs in the member, and is taken back with
--undo.`,
		Example: `  multicluster-apiserver absent m2
  multicluster-apiserver absent m2 --undo`,
		Args:         oneName,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return setAbsent(cmd, &endpoint, args[0], !undo)
		},
	}
	endpoint.add(cmd.Flags())
	cmd.Flags().BoolVar(&undo, "undo", false, "take the declaration back")
	return cmd
}

func setAbsent(cmd *cobra.Command, endpoint *endpointFlags, name string, absent bool) error {
	config, err := endpoint.config()
	if err != nil {
		return err
	}
	clusters, err := client.NewForConfig(config)
	if err != nil {
		return err
	}
	var value any // nil removes the annotation
	said := "is no longer declared absent"
	if absent {
		value, said = "true", "is declared absent: LISTs no longer wait for it"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{v1alpha1.AbsentAnnotation: value},
	}})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = clusters.Patch(cmd.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "isthmus-absent"})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no Cluster %q (see: kubectl get clusters): %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", name, said)
	return err
}
