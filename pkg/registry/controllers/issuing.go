package controllers

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	tokens "k8s.io/kubernetes/pkg/serviceaccount"
)

// certificateLife is the longest that a signed client certificate lasts.
const certificateLife = 365 * 24 * time.Hour

// issuing are the controllers that hand out credentials for the endpoint: they
// sign approved certificate requests of API clients, and fill token Secrets.
// Kubelets are the members' own, so their requests are not signed here.
func issuing(ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory, cfg Config) ([]runner, error) {
	var runners []runner
	requests := shared.Certificates().V1().CertificateSigningRequests()
	clean := cleaner.NewCSRCleanerController(client.CertificatesV1().CertificateSigningRequests(), requests)
	runners = append(runners, func(ctx context.Context) { clean.Run(ctx, 1) })
	if _, err := os.Stat(cfg.ClientCAKey); cfg.ClientCAKey != "" && err == nil {
		sign, err := signer.NewKubeAPIServerClientCSRSigningController(ctx, client, requests, cfg.ClientCA, cfg.ClientCAKey, certificateLife)
		if err != nil {
			return nil, fmt.Errorf("signer of client certificates: %w", err)
		}
		runners = append(runners, func(ctx context.Context) { sign.Run(ctx, workers) })
	}
	if cfg.ServiceAccountKey == "" {
		return runners, nil
	}
	key, err := keyutil.PrivateKeyFromFile(cfg.ServiceAccountKey)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs service account tokens: %w", err)
	}
	generator, err := tokens.JWTTokenGenerator(tokens.LegacyIssuer, key)
	if err != nil {
		return nil, fmt.Errorf("generator of service account tokens: %w", err)
	}
	fill, err := serviceaccount.NewTokensController(klog.FromContext(ctx), shared.Core().V1().ServiceAccounts(), shared.Core().V1().Secrets(), client,
		serviceaccount.TokensControllerOptions{TokenGenerator: generator, RootCA: cfg.RootCA})
	if err != nil {
		return nil, fmt.Errorf("controller of token Secrets: %w", err)
	}
	return append(runners, func(ctx context.Context) { fill.Run(ctx, workers) }), nil
}
