package app

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

// AdminKubeconfig is the name of the administrator's file in the data directory.
const AdminKubeconfig = "admin.kubeconfig"

// endpointURL is how a local client reaches the endpoint.
func endpointURL(bind net.IP, port int) string {
	host := "127.0.0.1"
	if bind != nil && !bind.IsUnspecified() {
		host = bind.String()
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// writeAdminKubeconfig writes the administrator's kubeconfig, embedding the
// certificates so that the file can be copied.
func writeAdminKubeconfig(dataDir, server string, servingCA []byte, files pki.Files) error {
	certificate, err := os.ReadFile(files.Cert(pki.Admin))
	if err != nil {
		return fmt.Errorf("read the administrator's certificate: %w", err)
	}
	key, err := os.ReadFile(files.Key(pki.Admin))
	if err != nil {
		return fmt.Errorf("read the administrator's key: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["isthmus"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: servingCA}
	config.AuthInfos["isthmus-admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts["isthmus"] = &clientcmdapi.Context{Cluster: "isthmus", AuthInfo: "isthmus-admin"}
	config.CurrentContext = "isthmus"
	path := filepath.Join(dataDir, AdminKubeconfig)
	tmp := path + ".tmp"
	if err := clientcmd.WriteToFile(*config, tmp); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
