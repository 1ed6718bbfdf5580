package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-dev/isthmus/pkg/federation/join"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

type kubeconfigOptions struct {
	endpoint                        endpointFlags
	user, namespace, role           string
	groups                          []string
	cluster, identity               string
	memberKubeconfig, memberContext string
	output                          string
	validFor                        time.Duration
}

func newKubeconfigCommand() *cobra.Command {
	o := &kubeconfigOptions{}
	cmd := &cobra.Command{
		Use:   "kubeconfig (--user NAME | --cluster MEMBER)",
		Short: "Write a kubeconfig for a user, or the break-glass one of a member",
		Long: `Write a kubeconfig.

With --user it holds a client certificate for that user and its groups, signed
by the endpoint's client CA in the data directory. With --namespace the user is
given --role in that namespace; without it, rights come from the RBAC that names
the user or its groups.

With --cluster it leads straight to the member, for when the endpoint is down:
prepare it beforehand and keep it safe. Its context MEMBER has the rights of our
reading identity in the member (look at everything but Secrets, logs, exec, write
to Pods and Nodes), MEMBER-apply those of the one that writes workloads; with
--identity there is only one of them. The tokens are valid for --valid-for or as
long as the member allows. With --member-kubeconfig the file is a copy of that
administrator's access.`,
		Example: `  # A user that may edit one namespace
  multicluster-apiserver kubeconfig --user alice --namespace team-a -o alice.kubeconfig

  # A user with groups; rights come from RBAC on them
  multicluster-apiserver kubeconfig --user bob --group developers --group on-call -o bob.kubeconfig

  # Break glass: straight to a member
  multicluster-apiserver kubeconfig --cluster m1 -o m1.kubeconfig`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	o.endpoint.add(fs)
	fs.StringVar(&o.user, "user", "", "name of the user")
	fs.StringArrayVar(&o.groups, "group", nil, "group of the user; may be repeated")
	fs.StringVar(&o.namespace, "namespace", "", "namespace of the context; the user is given --role in it")
	fs.StringVar(&o.role, "role", "edit", "ClusterRole to bind in --namespace; empty binds nothing")
	fs.StringVar(&o.cluster, "cluster", "", "member to write the break-glass kubeconfig of")
	fs.StringVar(&o.identity, "identity", "", "only this identity in the member for --cluster: apply or read (default: a context for each)")
	fs.StringVar(&o.memberKubeconfig, "member-kubeconfig", "", "with --cluster: take the access from this file")
	fs.StringVar(&o.memberContext, "member-context", "", "context of --member-kubeconfig to use")
	fs.DurationVar(&o.validFor, "valid-for", 365*24*time.Hour, "how long the credentials are valid")
	fs.StringVarP(&o.output, "output", "o", "", "file to write (default: standard output)")
	return cmd
}

func (o *kubeconfigOptions) validate() error {
	switch {
	case o.user == "" && o.cluster == "":
		return errors.New("--user NAME (a user of the endpoint) or --cluster NAME (straight to a member) is needed")
	case o.user != "" && o.cluster != "":
		return errors.New("--user and --cluster exclude each other: one is a user of the endpoint, the other leads straight to a member")
	case o.cluster != "" && (len(o.groups) > 0 || o.namespace != ""):
		return errors.New("--group and --namespace belong to --user")
	case o.identity != "" && o.identity != "apply" && o.identity != "read":
		return fmt.Errorf("--identity %q: apply or read", o.identity)
	case o.validFor < 10*time.Minute:
		return errors.New("--valid-for: at least 10m")
	case o.user != strings.TrimSpace(o.user):
		return fmt.Errorf("--user %q begins or ends with a space", o.user)
	}
	for _, g := range o.groups {
		if strings.TrimSpace(g) == "" {
			return errors.New("--group must not be empty")
		}
	}
	return nil
}

func (o *kubeconfigOptions) run(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	var config *clientcmdapi.Config
	var err error
	if o.user != "" {
		config, err = o.forUser(cmd.Context(), cmd.ErrOrStderr())
	} else {
		config, err = o.forMember(cmd.Context())
	}
	if err != nil {
		return err
	}
	return writeKubeconfig(config, o.output, cmd.OutOrStdout())
}

// forUser issues a client certificate.
func (o *kubeconfigOptions) forUser(ctx context.Context, notes io.Writer) (*clientcmdapi.Config, error) {
	endpoint, err := o.endpoint.config()
	if err != nil {
		return nil, err
	}
	files := pki.Files{Dir: filepath.Join(o.endpoint.dataDir, "pki")}
	cert, key, err := files.Issue(pki.ClientCA, pki.Subject{
		CommonName: o.user, Organizations: o.groups, Client: true, Life: o.validFor,
	})
	if err != nil {
		return nil, fmt.Errorf("the client CA of the endpoint is needed (run this where its data directory is, and give --data-dir): %w", err)
	}
	if o.namespace != "" && o.role != "" {
		if err := o.bind(ctx, endpoint); err != nil {
			return nil, err
		}
	} else if _, err := fmt.Fprintf(notes, "No rights are given: bind roles to user %q or its groups, or use --namespace.\n", o.user); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	auth := &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	return kubeconfigFor("isthmus", o.user, o.namespace, endpoint, auth)
}

// bind gives the user its role in the namespace.
func (o *kubeconfigOptions) bind(ctx context.Context, endpoint *rest.Config) error {
	client, err := kubernetes.NewForConfig(endpoint)
	if err != nil {
		return fmt.Errorf("client of the endpoint: %w", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, o.namespace, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("namespace %s (create it first: kubectl create namespace %s): %w", o.namespace, o.namespace, err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, GenerateName: "kubeconfig-" + o.role + "-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: o.role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: o.user}},
	}
	existing, err := client.RbacV1().RoleBindings(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("RoleBindings in %s: %w", o.namespace, err)
	}
	for i := range existing.Items {
		b := &existing.Items[i]
		if b.RoleRef == binding.RoleRef && len(b.Subjects) == 1 && b.Subjects[0] == binding.Subjects[0] {
			return nil
		}
	}
	if _, err := client.RbacV1().ClusterRoles().Get(ctx, o.role, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("--role %s: there is no such ClusterRole", o.role)
	}
	if _, err := client.RbacV1().RoleBindings(o.namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding %s to %s in %s: %w", o.user, o.role, o.namespace, err)
	}
	return nil
}

// forMember makes the break-glass file.
func (o *kubeconfigOptions) forMember(ctx context.Context) (*clientcmdapi.Config, error) {
	if o.memberKubeconfig != "" {
		member, err := loadKubeconfig(o.memberKubeconfig, o.memberContext)
		if err != nil {
			return nil, fmt.Errorf("--member-kubeconfig %s: %w", o.memberKubeconfig, err)
		}
		if member.ExecProvider != nil || member.AuthProvider != nil {
			return nil, fmt.Errorf("--member-kubeconfig %s: it takes its credentials from a plugin, which cannot be kept in a file", o.memberKubeconfig)
		}
		return kubeconfigFor(o.cluster, "break-glass", "", member, authOf(member))
	}
	endpoint, err := o.endpoint.config()
	if err != nil {
		return nil, err
	}
	identities := []string{"read", "apply"}
	if o.identity != "" {
		identities = []string{o.identity}
	}
	var config *clientcmdapi.Config
	for _, identity := range identities {
		member, err := join.BreakGlass(ctx, endpoint, o.cluster, identity, o.validFor)
		if err != nil {
			return nil, err
		}
		user := "isthmus-" + identity
		if config == nil {
			if config, err = kubeconfigFor(o.cluster, user, "", member, authOf(member)); err != nil {
				return nil, err
			}
			continue
		}
		config.AuthInfos[user] = authOf(member)
		config.Contexts[o.cluster+"-"+identity] = &clientcmdapi.Context{Cluster: o.cluster, AuthInfo: user}
	}
	return config, nil
}

func authOf(c *rest.Config) *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{
		Token: c.BearerToken, TokenFile: c.BearerTokenFile, Username: c.Username, Password: c.Password,
		ClientCertificateData: c.CertData, ClientKeyData: c.KeyData,
	}
}

func kubeconfigFor(cluster, user, namespace string, at *rest.Config, auth *clientcmdapi.AuthInfo) (*clientcmdapi.Config, error) {
	proxy, err := join.ProxyOf(at)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server: at.Host, CertificateAuthorityData: at.CAData,
		InsecureSkipTLSVerify: at.Insecure, TLSServerName: at.ServerName,
		ProxyURL: proxy,
	}
	config.AuthInfos[user] = auth
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user, Namespace: namespace}
	config.CurrentContext = cluster
	return config, nil
}

// writeKubeconfig writes to a file that only its owner can read, or to out.
func writeKubeconfig(config *clientcmdapi.Config, path string, out io.Writer) error {
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if path == "" || path == "-" {
		_, err := out.Write(data)
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	_, err = fmt.Fprintf(out, "Wrote %s\n", path)
	return err
}
