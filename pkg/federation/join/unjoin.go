package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

// settleTime is how long what was on its way to the member when its Cluster
// went may take to arrive.
const settleTime = 2 * time.Second

// UnjoinRequest is one unjoin.
type UnjoinRequest struct {
	Name         string
	ControlPlane *rest.Config
	// Member is an administrator of the member; nil uses the apply identity.
	Member       *rest.Config
	MemberSource string
	// Force goes on when the member does not answer.
	Force bool
	// Timeout bounds what is done in the member.
	Timeout time.Duration
	// DeleteWorkloads deletes the managed copies; else they lose their marks
	// and stay.
	DeleteWorkloads bool
	// IgnoreNotFound is content with a cluster that is not joined.
	IgnoreNotFound bool
	Out            io.Writer
}

// unjoin is an UnjoinRequest under way.
type unjoin struct {
	UnjoinRequest
	endpoint *endpointClients
	cluster  *v1alpha1.Cluster // nil: gone already
	secrets  []*corev1.Secret
	member   *memberClients // nil: not reached
	admin    bool           // member is an administrator
}

// Unjoin takes a cluster out. It may be repeated as long as anything is left to
// do; of what is not joined it is ErrNotJoined.
func Unjoin(ctx context.Context, req UnjoinRequest) error {
	if err := ValidateName(req.Name); err != nil {
		return err
	}
	endpoint, err := endpointFor(req.ControlPlane)
	if err != nil {
		return err
	}
	u := &unjoin{UnjoinRequest: req, endpoint: endpoint}
	if err := u.load(ctx); err != nil {
		return err
	}
	if u.cluster == nil && len(u.secrets) == 0 && req.Member == nil {
		if req.IgnoreNotFound {
			u.say("is not joined, nothing to do")
			return nil
		}
		return u.unknown(ctx)
	}
	if err := u.reach(ctx); err != nil {
		if !req.Force {
			return fmt.Errorf("%w: nothing was changed. When it is gone for good, run: multicluster-apiserver unjoin %s --force: %w", ErrMemberLeftover, req.Name, err)
		}
		u.say("the member does not answer as itself and is left as it is: %v", err)
	}
	if err := u.removeCluster(ctx); err != nil {
		return err
	}
	if err := u.cleanMember(ctx); err != nil {
		if !req.Force {
			return fmt.Errorf("%w: the Cluster is gone, the credentials are kept so that the same command can go on; or add --force: %w", ErrMemberLeftover, err)
		}
		u.say("not everything in the member could be removed: %v", err)
	}
	if err := u.removeSecrets(ctx); err != nil {
		return err
	}
	u.report()
	return nil
}

// ErrNotJoined is returned for a name that no Cluster has.
var ErrNotJoined = errors.New("there is no such Cluster")

// unknown says which Clusters there are.
func (u *unjoin) unknown(ctx context.Context) error {
	list, err := u.endpoint.clusters.List(ctx, metav1.ListOptions{})
	if err != nil {
		return explainEndpoint(u.endpoint.host, err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	known := "none is joined"
	if len(names) > 0 {
		known = "joined are " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%s: %w (%s); --ignore-not-found is content with that", u.Name, ErrNotJoined, known)
}

func (u *unjoin) say(format string, args ...any) {
	fmt.Fprintf(u.Out, "%s: %s\n", u.Name, fmt.Sprintf(format, args...)) //nolint:errcheck // progress for people
}

func (u *unjoin) load(ctx context.Context) error {
	cluster, err := u.endpoint.clusters.Get(ctx, u.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		u.cluster = cluster
	case !apierrors.IsNotFound(err):
		return explainEndpoint(u.endpoint.host, err)
	default:
		// Not found may also mean that Clusters are not served at all.
		if _, err := u.endpoint.clusters.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return explainEndpoint(u.endpoint.host, err)
		}
	}
	for _, name := range []string{u.Name + v1alpha1.ApplySecretSuffix, u.Name} {
		secret, err := u.endpoint.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return explainEndpoint(u.endpoint.host, err)
		case secret.Labels[v1alpha1.MemberLabel] == u.Name:
			u.secrets = append(u.secrets, secret)
		}
	}
	return nil
}

// reach connects to the member and makes sure that it is the one that joined.
func (u *unjoin) reach(ctx context.Context) error {
	config, err := u.memberConfig()
	if err != nil {
		return err
	}
	member, err := clientsFor(config, min(u.Timeout, requestTimeout))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	_, uid, err := member.identify(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if want := u.identity(); want != "" && want != uid {
		return fmt.Errorf("%w: UID %s joined as %q, %s answers at %s", ErrOtherCluster, want, u.Name, uid, config.Host)
	}
	u.member = member
	return nil
}

// identity is the UID of the member as far as it is remembered.
func (u *unjoin) identity() types.UID {
	if u.cluster != nil && u.cluster.Spec.ID != "" {
		return types.UID(u.cluster.Spec.ID)
	}
	for _, s := range u.secrets {
		if uid := s.Annotations[v1alpha1.MemberUIDAnnotation]; uid != "" {
			return types.UID(uid)
		}
	}
	return ""
}

func (u *unjoin) memberConfig() (*rest.Config, error) {
	if u.Member != nil {
		u.admin = true
		return u.Member, nil
	}
	if len(u.secrets) == 0 {
		return nil, fmt.Errorf("%w: there is no Secret of ours with its credentials: give --member-kubeconfig", ErrUnreachable)
	}
	cluster, secret := u.cluster, u.secrets[0] // the apply identity comes first
	if cluster == nil {
		cluster = &v1alpha1.Cluster{}
		cluster.Spec.APIEndpoint = secret.Annotations[v1alpha1.EndpointAnnotation]
	}
	return membership.ConfigOf(cluster, secret)
}

// removeCluster deletes the Cluster, so that cache and engine let go of the
// member, and waits until it is gone.
func (u *unjoin) removeCluster(ctx context.Context) error {
	if u.cluster == nil {
		return nil
	}
	uid := u.cluster.UID
	err := u.endpoint.clusters.Delete(ctx, u.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return explainEndpoint(u.endpoint.host, err)
	}
	deadline := time.Now().Add(u.Timeout)
	for {
		current, err := u.endpoint.clusters.Get(ctx, u.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && current.UID != uid) {
			u.say("removed from the control plane")
			return nil
		}
		if err != nil {
			return explainEndpoint(u.endpoint.host, err)
		}
		if time.Now().After(deadline) {
			if !u.Force {
				return fmt.Errorf("%w: the Cluster is kept by its finalizers %v: wait, or add --force", ErrMemberLeftover, current.Finalizers)
			}
			if err := u.dropFinalizers(ctx, current); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (u *unjoin) dropFinalizers(ctx context.Context, c *v1alpha1.Cluster) error {
	u.say("dropping its finalizers %v", c.Finalizers)
	updated := c.DeepCopy()
	updated.Finalizers = nil
	_, err := u.endpoint.clusters.Update(ctx, updated, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return explainEndpoint(u.endpoint.host, err)
	}
	return nil
}

// cleanMember undoes what the federation did in the member.
func (u *unjoin) cleanMember(ctx context.Context) error {
	if u.member == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	if u.cluster != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(settleTime, u.Timeout/4)):
		}
	}
	done, err := u.member.letGo(ctx, u.DeleteWorkloads)
	if done.released > 0 {
		u.say("%d managed copies lost their marks and stay as they are", done.released)
	}
	if done.deleted > 0 {
		u.say("%d managed copies deleted", done.deleted)
	}
	if err != nil {
		return err
	}
	if err := u.member.removeIdentities(ctx, u.admin); err != nil {
		return err
	}
	u.say("removed our identities in the member")
	return nil
}

func (u *unjoin) removeSecrets(ctx context.Context) error {
	var errs []error
	for _, secret := range u.secrets {
		uid := secret.UID
		err := u.endpoint.kube.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, explainEndpoint(u.endpoint.host, err))
		}
	}
	return errors.Join(errs...)
}

// report says what may be left behind.
func (u *unjoin) report() {
	if u.member != nil {
		u.say("unjoined")
		return
	}
	u.say("unjoined. If the cluster comes back, these are left in it: managed copies (label %s=true), the namespace %s, and the ClusterRoles and ClusterRoleBindings with the label %s. To remove the identities later: multicluster-apiserver unjoin %s --member-kubeconfig FILE, or in the member: kubectl delete clusterrole %s",
		managedLabel, v1alpha1.MemberNamespace, v1alpha1.IdentityLabel, u.Name, membershipRole)
}
