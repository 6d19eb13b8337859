{{- define "toolsieve.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "toolsieve.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "toolsieve.selectorLabels" -}}
app.kubernetes.io/name: {{ include "toolsieve.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "toolsieve.labels" -}}
{{ include "toolsieve.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "toolsieve.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{- .Values.publicUrl -}}
{{- else if .Values.ingress.enabled -}}
{{- printf "%s://%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host -}}
{{- end -}}
{{- end -}}

{{- define "toolsieve.claim" -}}
{{- .Values.persistence.existingClaim | default (printf "%s-data" (include "toolsieve.fullname" .)) -}}
{{- end -}}

{{/* Whether the chart creates a ConfigMap. */}}
{{- define "toolsieve.hasConfig" -}}
{{- if or .Values.servers.inline (ne (trim .Values.settings) "") -}}true{{- end -}}
{{- end -}}

{{/* Rejects contradictory values, and reports all problems together. */}}
{{- define "toolsieve.validate" -}}
{{- $problems := list -}}
{{- if not .Values.image.repository -}}
{{- $problems = append $problems "image.repository: is empty; set it to the image that you built with deploy/Dockerfile" -}}
{{- end -}}
{{- if ne (int .Values.replicas) 1 -}}
{{- $problems = append $problems "replicas: only one process can use a data folder; set it to 1" -}}
{{- end -}}

{{- $sources := list -}}
{{- if .Values.servers.inline }}{{ $sources = append $sources "servers.inline" }}{{ end -}}
{{- if .Values.servers.existingConfigMap }}{{ $sources = append $sources "servers.existingConfigMap" }}{{ end -}}
{{- if .Values.servers.existingSecret }}{{ $sources = append $sources "servers.existingSecret" }}{{ end -}}
{{- if not $sources -}}
{{- $problems = append $problems "servers: there are no MCP servers; set servers.inline, servers.existingConfigMap or servers.existingSecret" -}}
{{- else if gt (len $sources) 1 -}}
{{- $problems = append $problems (printf "servers: %s are set; keep one of them" (join " and " $sources)) -}}
{{- end -}}

{{- if and .Values.keys.existingSecret .Values.keys.insecure -}}
{{- $problems = append $problems "keys: existingSecret and insecure are set; keep one of them" -}}
{{- else if not (or .Values.keys.existingSecret .Values.keys.insecure) -}}
{{- $problems = append $problems "keys: other pods can reach the service, so it needs a key; set keys.existingSecret, or allow everybody with keys.insecure" -}}
{{- end -}}

{{- if and .Values.persistence.existingClaim (not .Values.persistence.enabled) -}}
{{- $problems = append $problems "persistence: existingClaim is set, but enabled is false; set persistence.enabled to true, or remove the claim" -}}
{{- end -}}
{{- if and .Values.persistence.existingClaim .Values.persistence.storageClass -}}
{{- $problems = append $problems "persistence: storageClass has no effect on an existingClaim; keep one of them" -}}
{{- end -}}
{{- if and .Values.persistence.existingClaim (eq .Values.persistence.existingClaim .Values.home.existingClaim) -}}
{{- $problems = append $problems "home.existingClaim: is the claim of the data folder; use another claim" -}}
{{- end -}}

{{- if .Values.ingress.enabled -}}
{{- if not .Values.ingress.host -}}
{{- $problems = append $problems "ingress.host: is empty; set it to the name under which people reach the service" -}}
{{- else if and .Values.publicUrl (ne (get (urlParse .Values.publicUrl) "host" | splitList ":" | first) .Values.ingress.host) -}}
{{- $problems = append $problems (printf "publicUrl: %s is not at ingress.host (%s), so the service would reject its own pages; make them match" .Values.publicUrl .Values.ingress.host) -}}
{{- end -}}
{{- else if or .Values.ingress.host .Values.ingress.tlsSecret -}}
{{- $problems = append $problems "ingress: host or tlsSecret is set, but enabled is false; set ingress.enabled to true, or remove them" -}}
{{- end -}}

{{- if and .Values.podMonitor.enabled .Values.podMonitor.credentials.name .Values.keys.insecure -}}
{{- $problems = append $problems "podMonitor.credentials.name: has no effect with keys.insecure; keep one of them" -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not .Values.podMonitor.enabled) -}}
{{- $problems = append $problems "prometheusRule: is enabled, but nothing scrapes the metrics; set podMonitor.enabled to true too" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) -}}
{{- $problems = append $problems "networkPolicy.metricsFrom: is empty, so the policy keeps Prometheus out; name its pods, or set podMonitor.enabled to false" -}}
{{- end -}}
{{- if and (not .Values.networkPolicy.enabled) (or .Values.networkPolicy.from .Values.networkPolicy.metricsFrom (not (kindIs "invalid" .Values.networkPolicy.egress))) -}}
{{- $problems = append $problems "networkPolicy: rules are set, but enabled is false; set networkPolicy.enabled to true, or remove the rules" -}}
{{- end -}}

{{- $user := .Values.podSecurityContext.runAsUser -}}
{{- if and .Values.podSecurityContext.runAsNonRoot (not (kindIs "invalid" $user)) (eq (int $user) 0) -}}
{{- $problems = append $problems "podSecurityContext: runAsUser is root, but runAsNonRoot is true; use another user" -}}
{{- end -}}

{{- $settings := fromToml .Values.settings -}}
{{- if hasKey $settings "Error" -}}
{{- $problems = append $problems (printf "settings: is not TOML: %s" (get $settings "Error")) -}}
{{- else -}}
{{- $http := get $settings "http" | default dict -}}
{{- $store := get $settings "store" | default dict -}}
{{- range $key := list "host" "port" "insecure" -}}
{{- if hasKey $http $key -}}
{{- $problems = append $problems (printf "settings: the chart sets http.%s; remove it" $key) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $http "public_url" -}}
{{- $problems = append $problems "settings: contains http.public_url; use publicUrl instead" -}}
{{- end -}}
{{- if or (hasKey $http "tls_certificate") (hasKey $http "tls_key") -}}
{{- $problems = append $problems "settings: contains http.tls_certificate or http.tls_key, but the probes and the Service use plain HTTP; use ingress.tlsSecret instead" -}}
{{- end -}}
{{- $metrics := get $settings "metrics" | default dict -}}
{{- if and .Values.podMonitor.enabled (hasKey $metrics "enabled") (not (get $metrics "enabled")) -}}
{{- $problems = append $problems "podMonitor: is enabled, but the settings disable the metrics; keep one of them" -}}
{{- end -}}
{{- if hasKey $store "data_dir" -}}
{{- $problems = append $problems "settings: the chart sets store.data_dir; remove it" -}}
{{- end -}}
{{- end -}}

{{- $reserved := list "TOOLSIEVE_HOST" "TOOLSIEVE_PORT" "TOOLSIEVE_DATA_DIR" "TOOLSIEVE_HTTP__HOST" "TOOLSIEVE_HTTP__PORT" "TOOLSIEVE_HTTP__PUBLIC_URL" "TOOLSIEVE_HTTP__INSECURE" "TOOLSIEVE_STORE__DATA_DIR" "CREDENTIALS_DIRECTORY" "HOME" -}}
{{- range .Values.env -}}
{{- if has .name $reserved -}}
{{- $problems = append $problems (printf "env: the chart sets %s; remove it" .name) -}}
{{- end -}}
{{- end -}}

{{- if $problems -}}
{{- fail (printf "\n\nThe values can't work:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}
