package join

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

// BreakGlass returns a config that leads straight to a member as one of our
// identities ("read" or "apply"), with a token of its own where the identity is
// a ServiceAccount that may make one.
func BreakGlass(ctx context.Context, controlPlane *rest.Config, name, identity string, validFor time.Duration) (*rest.Config, error) {
	endpoint, err := endpointFor(controlPlane)
	if err != nil {
		return nil, err
	}
	cluster, err := endpoint.clusters.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Cluster %q (see: kubectl get clusters): %w", name, err)
	}
	if err != nil {
		return nil, explainEndpoint(endpoint.host, err)
	}
	secretName := name
	if cluster.Spec.SecretRef != nil {
		secretName = cluster.Spec.SecretRef.Name
	}
	if identity == "apply" {
		secretName = name + v1alpha1.ApplySecretSuffix
	}
	secret, err := endpoint.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace).Get(ctx, secretName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("credentials of cluster %s: %w", name, explainEndpoint(endpoint.host, err))
	}
	config, err := membership.ConfigOf(cluster, secret)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	namespace, account, ok := strings.Cut(secret.Annotations[v1alpha1.ServiceAccountAnnotation], "/")
	if !ok {
		return config, nil
	}
	member, err := clientsFor(config, requestTimeout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if config.BearerToken, err = membership.RequestToken(ctx, member.kube, namespace, account, validFor); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return config, nil
}
