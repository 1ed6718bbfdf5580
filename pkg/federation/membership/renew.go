package membership

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

const (
	// DefaultTokenLifetime is how long a token of ours lives when nobody
	// says otherwise: long enough that a control plane that was down for
	// days finds its members again.
	DefaultTokenLifetime = 7 * 24 * time.Hour
	// MinTokenLifetime is the shortest that a TokenRequest may ask for.
	MinTokenLifetime = 10 * time.Minute

	renewTimeout = 20 * time.Second
	renewRetry   = time.Minute
)

// renewal is the state of the renewal of one Secret's token.
type renewal struct {
	running bool
	failure string
	next    time.Time // not before
}

// serviceAccountOf returns the ServiceAccount whose token a Secret holds, when
// the Secret asks for renewal.
func serviceAccountOf(secret *corev1.Secret) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(secret.Annotations[v1alpha1.ServiceAccountAnnotation], "/")
	return namespace, name, ok && namespace != "" && name != ""
}

func lifetimeOf(secret *corev1.Secret) time.Duration {
	d, err := time.ParseDuration(secret.Annotations[v1alpha1.TokenLifetimeAnnotation])
	if err != nil {
		return DefaultTokenLifetime
	}
	return max(d, MinTokenLifetime)
}

// credentialsOf lists the credentials of a member with their ends.
func (c *Controller) credentialsOf(cluster *v1alpha1.Cluster, l *link) []credential {
	l.mu.Lock()
	ids := []struct {
		id     *identity
		as     string
		secret string
	}{{l.read, "read", ""}, {l.apply, "apply", cluster.Name + v1alpha1.ApplySecretSuffix}, {l.impersonate, "impersonate", ""}}
	l.mu.Unlock()
	if ref := cluster.Spec.SecretRef; ref != nil {
		ids[0].secret = ref.Name
	}
	if ref := cluster.Spec.ImpersonatorSecretRef; ref != nil {
		ids[2].secret = ref.Name
	}
	var out []credential
	for _, one := range ids {
		if one.id == nil {
			continue
		}
		l.mu.Lock()
		w := one.id.way
		l.mu.Unlock()
		if w.access.Cert != "" {
			out = append(out, credential{name: one.as + " certificate", validity: certValidity(w.access.Cert)})
		}
		if w.token == "" {
			continue
		}
		cr := credential{name: one.as + " token", validity: tokenValidity(w.token)}
		if secret, ok := c.secret(one.secret); ok {
			_, _, cr.rotated = serviceAccountOf(secret)
		}
		c.mu.Lock()
		if r := c.renewals[one.secret]; r != nil {
			cr.failure = r.failure
		}
		c.mu.Unlock()
		out = append(out, cr)
	}
	return out
}

// renewTokens starts the renewal of the tokens of a member that are past 80 %
// of their life. The member answers on its own time, so each renewal has a
// goroutine; one Secret has one at a time.
func (c *Controller) renewTokens(ctx context.Context, l *link, cluster *v1alpha1.Cluster) {
	if confirmed, _, _ := l.trust.state(); !confirmed {
		return
	}
	l.mu.Lock()
	read, apply := l.read, l.apply
	l.mu.Unlock()
	if ref := cluster.Spec.SecretRef; ref != nil && read != nil {
		c.renewToken(ctx, ref.Name, read.config, l)
	}
	if apply != nil {
		c.renewToken(ctx, cluster.Name+v1alpha1.ApplySecretSuffix, apply.config, l)
	}
}

func (c *Controller) renewToken(ctx context.Context, secretName string, config *rest.Config, l *link) {
	secret, ok := c.secret(secretName)
	if !ok {
		return
	}
	if _, _, ok := serviceAccountOf(secret); !ok {
		return
	}
	due := tokenValidity(string(secret.Data[v1alpha1.SecretTokenKey])).rotateAt()
	now := time.Now()
	if due.IsZero() || now.Before(due) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.renewals[secretName]
	if r == nil {
		r = &renewal{}
		c.renewals[secretName] = r
	}
	if r.running || now.Before(r.next) {
		return
	}
	r.running = true
	go func() {
		rctx, cancel := context.WithTimeout(ctx, renewTimeout)
		defer cancel()
		err := c.renew(rctx, secret, config)
		c.mu.Lock()
		r.running, r.failure, r.next = false, "", time.Now().Add(renewRetry)
		if err != nil {
			r.failure = excerpt([]byte(err.Error()))
		}
		c.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Token of a member not renewed, will retry", "cluster", l.name, "secret", secretName)
		}
		l.changed()
	}()
}

// renew asks the member for a new token by the right of the old one, and
// writes it to the Secret, from where every user takes it.
func (c *Controller) renew(ctx context.Context, secret *corev1.Secret, config *rest.Config) error {
	namespace, name, _ := serviceAccountOf(secret)
	httpClient, err := boundedClient(config)
	if err != nil {
		return err
	}
	member, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("client of the member: %w", err)
	}
	token, err := RequestToken(ctx, member, namespace, name, lifetimeOf(secret))
	if err != nil {
		return err
	}
	updated := secret.DeepCopy()
	updated.Data[v1alpha1.SecretTokenKey] = []byte(token)
	if _, err := c.kube.CoreV1().Secrets(secret.Namespace).Update(ctx, updated, metav1.UpdateOptions{FieldManager: "isthmus-membership"}); err != nil {
		return fmt.Errorf("writing the new token to Secret %s: %w", secret.Name, err)
	}
	klog.FromContext(ctx).Info("Renewed the token of a member", "secret", secret.Name, "until", tokenValidity(token).notAfter)
	return nil
}

// RequestToken asks a member for a token of one of its ServiceAccounts.
func RequestToken(ctx context.Context, member kubernetes.Interface, namespace, name string, lifetime time.Duration) (string, error) {
	seconds := int64(lifetime / time.Second)
	answer, err := member.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	if answer.Status.Token == "" {
		return "", fmt.Errorf("token of ServiceAccount %s/%s: the member answered with an empty one", namespace, name)
	}
	return answer.Status.Token, nil
}
