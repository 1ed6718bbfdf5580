// Package memberkinds embeds the CustomResourceDefinitions that give discovery,
// explain and RBAC to kinds whose data lives in the members only. The router
// diverts their requests before the control plane's storage is reached.
package memberkinds

import "embed"

// Files holds the manifests.
//
//go:embed *.yaml
var Files embed.FS
