// Package defaults embeds the policies that are in force as long as a platform
// has none of its own. The registry installs them once, at the first start; a
// deleted or changed one is not put back.
package defaults

import "embed"

// Files holds YAML documents to create in the control plane.
//
//go:embed *.yaml
var Files embed.FS
