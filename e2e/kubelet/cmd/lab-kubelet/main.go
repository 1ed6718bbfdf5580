// Command lab-kubelet serves the streams of a member's Pods on loopback.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/e2e/kubelet"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "confine" {
		fmt.Fprintln(os.Stderr, kubelet.Confine(os.Args[2:]))
		os.Exit(126)
	}
	var o options
	o.bind(flag.CommandLine)
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Stopped")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

type options struct {
	cluster, dir, address            string
	ca, serverCert, serverKey        string
	apiserver, clientCert, clientKey string
	upstream                         string
}

func (o *options) bind(flags *flag.FlagSet) {
	flags.StringVar(&o.cluster, "cluster", "", "name of the member")
	flags.StringVar(&o.dir, "dir", "", "folder of the Pods' logs and files")
	flags.StringVar(&o.address, "address", "", "HOST:PORT on loopback to listen on")
	flags.StringVar(&o.ca, "ca", "", "the member's CA certificate")
	flags.StringVar(&o.serverCert, "tls-cert-file", "", "certificate of this server")
	flags.StringVar(&o.serverKey, "tls-private-key-file", "", "its key")
	flags.StringVar(&o.apiserver, "apiserver", "", "https://HOST:PORT of the kube-apiserver")
	flags.StringVar(&o.clientCert, "client-cert-file", "", "certificate towards the kube-apiserver")
	flags.StringVar(&o.clientKey, "client-key-file", "", "its key")
	flags.StringVar(&o.upstream, "upstream", "", "https://HOST:PORT that answers metrics")
}

func (o *options) run(ctx context.Context) error {
	host, _, err := net.SplitHostPort(o.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return errors.New("--address: commands of this machine are served on loopback only")
	}
	for name, value := range map[string]string{"cluster": o.cluster, "dir": o.dir, "apiserver": o.apiserver} {
		if value == "" {
			return fmt.Errorf("--%s is required", name)
		}
	}
	cas, err := loadCA(o.ca)
	if err != nil {
		return err
	}
	serving, err := tls.LoadX509KeyPair(o.serverCert, o.serverKey)
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	client, err := tls.LoadX509KeyPair(o.clientCert, o.clientKey)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: cas, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
	}
	config := kubelet.Options{
		Cluster: o.cluster, Dir: o.dir,
		Pods: kubelet.APIPods{Server: o.apiserver, Client: &http.Client{Transport: transport}},
	}
	if o.upstream != "" {
		target, err := url.Parse(o.upstream)
		if err != nil {
			return fmt.Errorf("--upstream: %w", err)
		}
		config.Upstream = &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	}
	if self, err := os.Executable(); err == nil && kubelet.CanConfine([]string{self, "confine"}, o.dir) {
		config.Confine = []string{self, "confine"}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return kubelet.New(config).Serve(ctx, listener, &tls.Config{
		Certificates: []tls.Certificate{serving}, ClientCAs: cas,
		ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	})
}

func loadCA(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA: %s holds no certificate", path)
	}
	return pool, nil
}
