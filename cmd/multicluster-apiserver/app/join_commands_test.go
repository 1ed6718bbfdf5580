package app

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

func execute(t *testing.T, cmd *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceErrors = true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestMemberCommandsSayWhatIsWrong(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("not: [a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		cmd  *cobra.Command
		args []string
		says string
	}{
		{newJoinCommand(), []string{"a.b", "--member-kubeconfig", bad}, "no dots"},
		{newJoinCommand(), []string{"m1"}, "--member-kubeconfig is needed"},
		{newJoinCommand(), []string{"m1", "--member-kubeconfig", filepath.Join(dir, "none")}, "no such file"},
		{newJoinCommand(), []string{"m1", "--member-kubeconfig", bad}, bad},
		{newJoinCommand(), []string{"m1", "--member-kubeconfig", bad, "--token-lifetime", "1m"}, "too short"},
		{newJoinCommand(), []string{"m1", "--member-kubeconfig", bad, "--member-kinds", "widgets"}, "RESOURCE.GROUP"},
		{newJoinCommand(), []string{"m1", "--member-kubeconfig", bad, "--labels", "a b=c"}, "--labels"},
		{newJoinCommand(), nil, "the NAME of the Cluster is missing"},
		{newUnjoinCommand(), []string{"m1", "m2"}, "one NAME of a Cluster is wanted"},
		{newUnjoinCommand(), []string{"m1", "--data-dir", dir}, "admin.kubeconfig"},
		{newUnjoinCommand(), []string{"m1", "--timeout", "0s"}, "--timeout"},
		{newAbsentCommand(), []string{"m1", "--data-dir", dir}, "admin.kubeconfig"},
		{newAdoptCommand(), []string{"-n", "d"}, "--cluster is needed"},
		{newAdoptCommand(), []string{"--cluster", "m1"}, "--namespace or KIND/NAME"},
		{newAdoptCommand(), []string{"--cluster", "m1", "-n", "d", "--data-dir", dir}, "admin.kubeconfig"},
		{newReleaseCommand(), nil, "--namespace or KIND/NAME"},
		{newReleaseCommand(), []string{"-n", "d", "--data-dir", dir}, "admin.kubeconfig"},
		{newKubeconfigCommand(), nil, "or --cluster NAME"},
		{newKubeconfigCommand(), []string{"--user", "a", "--cluster", "m1"}, "exclude each other"},
		{newKubeconfigCommand(), []string{"--cluster", "m1", "--group", "g"}, "belong to --user"},
		{newKubeconfigCommand(), []string{"--cluster", "m1", "--identity", "root"}, "apply or read"},
	} {
		_, err := execute(t, tc.cmd, tc.args...)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s %v: %v, want it to say %q", tc.cmd.Name(), tc.args, err, tc.says)
		}
	}
}

func TestKubeconfigForUser(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	dir := t.TempDir()
	files, err := pki.Ensure(filepath.Join(dir, "pki"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeAdminKubeconfig(dir, "https://127.0.0.1:1", readFile(t, files.Cert(pki.ServerCA)), files); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "alice.kubeconfig")
	_, err = execute(t, newKubeconfigCommand(), "--user", "alice", "--group", "dev", "--group", "ops", "--data-dir", dir, "-o", path, "--valid-for", "24h")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Clusters["isthmus"]; got.Server != "https://127.0.0.1:1" || len(got.CertificateAuthorityData) == 0 {
		t.Errorf("cluster %+v", got)
	}
	block, _ := pem.Decode(config.AuthInfos["alice"].ClientCertificateData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if cert.Subject.CommonName != "alice" || strings.Join(cert.Subject.Organization, ",") != "dev,ops" {
		t.Errorf("subject %v", cert.Subject)
	}
	if left := time.Until(cert.NotAfter); left < 23*time.Hour || left > 25*time.Hour {
		t.Errorf("valid for %s", left)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(readFile(t, files.Cert(pki.ClientCA)))
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMemberCommandsHaveExamples(t *testing.T) {
	for _, cmd := range []*cobra.Command{newJoinCommand(), newUnjoinCommand(), newAbsentCommand(), newKubeconfigCommand()} {
		if cmd.Example == "" || cmd.Long == "" || !cmd.SilenceUsage {
			t.Errorf("%s has no help", cmd.Name())
		}
	}
}
