package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/client"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

const requestTimeout = 15 * time.Second

// Request is one join.
type Request struct {
	Name string
	// ControlPlane reaches the endpoint; Member the cluster, with the rights
	// of an administrator, which are used once and not kept.
	ControlPlane, Member *rest.Config
	// MemberSource is where Member came from, for messages.
	MemberSource string

	Region, Zone, Provider string
	Labels                 map[string]string
	Rights                 Rights
	// TokenLifetime is asked for the tokens of the identities.
	TokenLifetime time.Duration
	// Wait is how long to wait for Ready; 0 does not wait.
	Wait time.Duration
	// Out gets the progress.
	Out io.Writer
}

// endpointClients are the clients of the control plane.
type endpointClients struct {
	host     string
	clusters client.Clusters
	kube     kubernetes.Interface
	metadata metadata.Interface
}

func endpointFor(config *rest.Config) (*endpointClients, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Timeout = -1, requestTimeout
	clusters, err := client.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrControlPlane, err)
	}
	kube, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrControlPlane, err)
	}
	md, err := metadata.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrControlPlane, err)
	}
	return &endpointClients{host: own.Host, clusters: clusters, kube: kube, metadata: md}, nil
}

// explainEndpoint says what to do about an error of the control plane.
func explainEndpoint(host string, err error) error {
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %s refuses the given --kubeconfig: use the admin.kubeconfig of its data directory: %w", ErrControlPlane, host, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s does not serve Clusters: is --kubeconfig that of the endpoint (DATA_DIR/admin.kubeconfig) and not that of a member? %w", ErrControlPlane, host, err)
	}
	return fmt.Errorf("%w: %s: is multicluster-apiserver running there? %w", ErrControlPlane, host, err)
}

// join is a Request under way.
type join struct {
	Request
	endpoint *endpointClients
	member   *memberClients
	uid      types.UID
}

// Join registers a cluster. It may be repeated at any time: what is there is
// kept or brought up to date.
func Join(ctx context.Context, req Request) error {
	if err := ValidateName(req.Name); err != nil {
		return err
	}
	if req.TokenLifetime <= 0 {
		req.TokenLifetime = membership.DefaultTokenLifetime
	}
	endpoint, err := endpointFor(req.ControlPlane)
	if err != nil {
		return err
	}
	member, err := clientsFor(req.Member, requestTimeout)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, req.MemberSource, err)
	}
	j := &join{Request: req, endpoint: endpoint, member: member}
	if err := j.recognise(ctx); err != nil {
		return err
	}
	if err := j.addControlPlaneGroups(ctx); err != nil {
		return err
	}
	j.say("creating the identities %s and %s in its namespace %s", v1alpha1.ReadServiceAccount, v1alpha1.ApplyServiceAccount, v1alpha1.MemberNamespace)
	if err := j.member.ensure(ctx, j.Rights); err != nil {
		return err
	}
	if err := j.register(ctx); err != nil {
		return err
	}
	if j.Wait > 0 {
		if err := j.awaitReady(ctx); err != nil {
			return err
		}
	}
	if err := j.warnOfOwner(ctx); err != nil {
		return err
	}
	return j.printUnmanaged(ctx)
}

func (j *join) say(format string, args ...any) {
	fmt.Fprintf(j.Out, "%s: %s\n", j.Name, fmt.Sprintf(format, args...)) //nolint:errcheck // progress for people
}

// recognise finds out who the member is, and that it may join under the name.
func (j *join) recognise(ctx context.Context) error {
	version, uid, err := j.member.identify(ctx)
	if err != nil {
		return explainMember(j.MemberSource, err)
	}
	j.uid = uid
	j.say("found Kubernetes %s at %s (UID %s)", version, j.member.config.Host, uid)
	clusters, err := j.endpoint.clusters.List(ctx, metav1.ListOptions{})
	if err != nil {
		return explainEndpoint(j.endpoint.host, err)
	}
	self, err := j.endpoint.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return explainEndpoint(j.endpoint.host, err)
	}
	if err == nil && self.UID == uid {
		return fmt.Errorf("%w: %s and the endpoint %s are the same cluster", ErrSelf, j.MemberSource, j.endpoint.host)
	}
	return mayJoin(j.Name, uid, clusters.Items)
}

// mayJoin decides whether a cluster may join under a name.
func mayJoin(name string, uid types.UID, clusters []v1alpha1.Cluster) error {
	for i := range clusters {
		c := &clusters[i]
		same := types.UID(c.Spec.ID) == uid
		switch {
		case c.Name != name && same:
			return fmt.Errorf("%w as %q: use that name, or unjoin it first (multicluster-apiserver unjoin %s)", ErrAlreadyJoined, c.Name, c.Name)
		case c.Name == name && !same && c.Spec.ID != "":
			return fmt.Errorf("%w: %q is the cluster with UID %s, this one has %s: choose another name, or unjoin it first (multicluster-apiserver unjoin %s --force)", ErrOtherCluster, name, c.Spec.ID, uid, name)
		}
	}
	return nil
}

func explainMember(source string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("%s: %w", source, withRights(err))
	}
	return fmt.Errorf("%w with %s: check the address and that this machine reaches it: %w", ErrUnreachable, source, err)
}

// addControlPlaneGroups adds the groups of the control plane's own custom
// resources to those that may be applied.
func (j *join) addControlPlaneGroups(ctx context.Context) error {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	list, err := j.endpoint.metadata.Resource(crds).List(ctx, metav1.ListOptions{})
	if err != nil {
		return explainEndpoint(j.endpoint.host, err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	j.Rights.CustomGroups = append(j.Rights.CustomGroups, membership.FederatedGroups(names)...)
	return nil
}

// register writes Secrets and Cluster to the control plane.
func (j *join) register(ctx context.Context) error {
	namespaces := j.endpoint.kube.CoreV1().Namespaces()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CredentialsNamespace}}
	if _, err := namespaces.Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return explainEndpoint(j.endpoint.host, err)
	}
	j.say("storing its credentials in %s", v1alpha1.CredentialsNamespace)
	for _, as := range []struct{ secret, account, identity string }{
		{j.Name, v1alpha1.ReadServiceAccount, "read"},
		{j.Name + v1alpha1.ApplySecretSuffix, v1alpha1.ApplyServiceAccount, "apply"},
	} {
		token, err := membership.RequestToken(ctx, j.member.kube, v1alpha1.MemberNamespace, as.account, j.TokenLifetime)
		if err != nil {
			return withRights(err)
		}
		if err := j.storeSecret(ctx, as.secret, as.account, as.identity, token); err != nil {
			return err
		}
	}
	return j.storeCluster(ctx)
}

func (j *join) storeSecret(ctx context.Context, name, account, identity, token string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: v1alpha1.CredentialsNamespace,
			Labels: map[string]string{v1alpha1.MemberLabel: j.Name, v1alpha1.IdentityLabel: identity},
			Annotations: map[string]string{
				v1alpha1.EndpointAnnotation:       j.member.config.Host,
				v1alpha1.MemberUIDAnnotation:      string(j.uid),
				v1alpha1.ServiceAccountAnnotation: v1alpha1.MemberNamespace + "/" + account,
				v1alpha1.TokenLifetimeAnnotation:  j.TokenLifetime.String(),
			},
		},
		Data: map[string][]byte{v1alpha1.SecretTokenKey: []byte(token)},
	}
	tls := j.Member.TLSClientConfig
	if len(tls.CAData) > 0 && !tls.Insecure {
		secret.Data[v1alpha1.SecretCADataKey] = tls.CAData
	}
	if tls.ServerName != "" {
		secret.Data[v1alpha1.SecretServerNameKey] = []byte(tls.ServerName)
	}
	secrets := j.endpoint.kube.CoreV1().Secrets(secret.Namespace)
	_, err := secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return wrapEndpoint(j.endpoint.host, err)
	}
	current, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return explainEndpoint(j.endpoint.host, err)
	}
	if of := current.Labels[v1alpha1.MemberLabel]; of != j.Name {
		return fmt.Errorf("%w: Secret %s/%s in the control plane belongs to %q", ErrForeignObject, secret.Namespace, name, of)
	}
	secret.ResourceVersion = current.ResourceVersion
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	return wrapEndpoint(j.endpoint.host, err)
}

func wrapEndpoint(host string, err error) error {
	if err == nil {
		return nil
	}
	return explainEndpoint(host, err)
}

// storeCluster creates the Cluster, or brings an existing one up to date: what
// the request does not name stays as it is.
func (j *join) storeCluster(ctx context.Context) error {
	for {
		current, err := j.endpoint.clusters.Get(ctx, j.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			fresh := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: j.Name}}
			if err := j.fill(fresh); err != nil {
				return err
			}
			_, err = j.endpoint.clusters.Create(ctx, fresh, metav1.CreateOptions{FieldManager: fieldManager})
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			return wrapEndpoint(j.endpoint.host, err)
		case err != nil:
			return explainEndpoint(j.endpoint.host, err)
		case current.DeletionTimestamp != nil:
			return fmt.Errorf("cluster %s is being removed: wait for that, or run: multicluster-apiserver unjoin %s --force", j.Name, j.Name)
		}
		updated := current.DeepCopy()
		if err := j.fill(updated); err != nil {
			return err
		}
		_, err = j.endpoint.clusters.Update(ctx, updated, metav1.UpdateOptions{FieldManager: fieldManager})
		if !apierrors.IsConflict(err) {
			return wrapEndpoint(j.endpoint.host, err)
		}
	}
}

func (j *join) fill(c *v1alpha1.Cluster) error {
	proxy, err := ProxyOf(j.Member)
	if err != nil {
		return err
	}
	set := func(field *string, value string) {
		if value != "" {
			*field = value
		}
	}
	c.Spec.SyncMode = v1alpha1.Push
	c.Spec.ID = string(j.uid)
	c.Spec.APIEndpoint = j.member.config.Host
	c.Spec.InsecureSkipTLSVerification = j.Member.Insecure
	c.Spec.SecretRef = &v1alpha1.LocalSecretReference{Namespace: v1alpha1.CredentialsNamespace, Name: j.Name}
	set(&c.Spec.ProxyURL, proxy)
	set(&c.Spec.Region, j.Region)
	set(&c.Spec.Zone, j.Zone)
	set(&c.Spec.Provider, j.Provider)
	if j.Zone != "" && !slices.Contains(c.Spec.Zones, j.Zone) {
		c.Spec.Zones = append(c.Spec.Zones, j.Zone)
	}
	if len(j.Labels) > 0 {
		labels := maps.Clone(c.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, j.Labels)
		c.Labels = labels
	}
	return nil
}

// ProxyOf is the proxy that a kubeconfig names.
func ProxyOf(config *rest.Config) (string, error) {
	if config.Proxy == nil {
		return "", nil
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	proxy, err := config.Proxy(&http.Request{URL: target})
	if err != nil || proxy == nil {
		return "", err
	}
	return proxy.String(), nil
}

// awaitReady follows the conditions of the Cluster until it is Ready.
func (j *join) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.Wait)
	defer cancel()
	var last string
	started := time.Now()
	for {
		cluster, err := j.endpoint.clusters.Get(ctx, j.Name, metav1.GetOptions{})
		if err == nil {
			state, ready := stateOf(cluster)
			if state != last {
				j.say("%s", state)
				last = state
			}
			if ready {
				return nil
			}
		} else if ctx.Err() == nil {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			if last == "" {
				last = "nobody has looked at it yet: is multicluster-apiserver running?"
			}
			return fmt.Errorf("%w (%s): %s. The join itself is done; run the same command again to go on waiting",
				ErrNotReady, time.Since(started).Round(time.Second), last)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// stateOf is one line about a Cluster.
func stateOf(c *v1alpha1.Cluster) (state string, ready bool) {
	var parts []string
	for i := range c.Status.Conditions {
		cond := &c.Status.Conditions[i]
		switch cond.Type {
		case v1alpha1.ClusterConditionReady:
			ready = cond.Status == metav1.ConditionTrue
			if !ready {
				return fmt.Sprintf("not ready yet: %s: %s", cond.Reason, cond.Message), false
			}
			parts = append(parts, "Ready")
		case v1alpha1.ClusterConditionCredentialsValid:
			if cond.Status == metav1.ConditionFalse {
				parts = append(parts, cond.Reason+": "+cond.Message)
			}
		}
	}
	if len(parts) == 0 {
		return "waiting for the first look at it", false
	}
	return strings.Join(parts, ", "), ready
}

// IsUsage reports whether an error is the caller's and a repetition useless.
func IsUsage(err error) bool {
	return errors.Is(err, ErrInvalidName) || errors.Is(err, ErrSelf) || errors.Is(err, ErrAlreadyJoined) || errors.Is(err, ErrOtherCluster)
}
